"""A second opinion: kafka-python carries many of Kafka's own message schemas, and encoders of its own.

Declarations are compared with those schemas field by field, and bytes are compared both ways, in every version that
both sides know. `LACKING` is what kafka-python does not know; a test prints it and keeps it true, so that a newer
kafka-python is noticed.
"""

import io
import re
import uuid
from contextlib import suppress
from typing import Any

import pytest
from kafka.protocol.schemas import StructField, load_json

from kwire.wire import types
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages import APIS
from kwire.wire.schema import REQUIRED, ArrayKind, Field, Kind, Struct, Versions, message_of
from kwire.wire.spec import from_plain
from tests.wire.cases import CASES, MESSAGES, case_names
from tests.wire.strategies import drawn

KIND_NAMES: dict[Kind, str] = {
    types.BOOL: "bool",
    types.INT8: "int8",
    types.INT16: "int16",
    types.UINT16: "uint16",
    types.INT32: "int32",
    types.UINT32: "uint32",
    types.INT64: "int64",
    types.FLOAT64: "float64",
    types.UUID: "uuid",
    types.STRING: "string",
    types.BYTES: "bytes",
    types.RECORDS: "records",
}
# API and the versions of it that kafka-python 3.0 has no schema for.
LACKING = {
    "ApiVersions": "5",
    "TxnOffsetCommit": "6",
    "CreateDelegationToken": "1-3",
    "RenewDelegationToken": "1-2",
    "ExpireDelegationToken": "1-2",
    "DescribeDelegationToken": "1-3",
    "DeleteGroups": "3",
    "UnregisterBroker": "0",
    "ConsumerGroupHeartbeat": "0-1",
    "ConsumerGroupDescribe": "0-1",
    "GetTelemetrySubscriptions": "0",
    "PushTelemetry": "0",
    "ShareGroupHeartbeat": "1",
    "ShareGroupDescribe": "1",
    "ShareFetch": "1-2",
    "ShareAcknowledge": "1-2",
    "AddRaftVoter": "0-1",
    "RemoveRaftVoter": "0",
    "InitializeShareGroupState": "0",
    "ReadShareGroupState": "0",
    "WriteShareGroupState": "0-1",
    "DeleteShareGroupState": "0",
    "ReadShareGroupStateSummary": "0-1",
    "StreamsGroupHeartbeat": "0-1",
    "StreamsGroupDescribe": "0-1",
    "DescribeShareGroupOffsets": "0-1",
    "AlterShareGroupOffsets": "0",
    "DeleteShareGroupOffsets": "0",
    "StreamsGroupTopologyDescriptionUpdate": "0",
    "UnregisterController": "0",
}


def schemas_known() -> dict[str, dict[str, Any]]:
    found = {}
    for cls in MESSAGES:
        with suppress(FileNotFoundError):
            found[cls.__name__] = load_json(cls.__name__)
    # Kafka 4.4 gave one field another name.
    (renamed,) = [f for f in found["TxnOffsetCommitRequest"]["fields"] if f["name"] == "GenerationId"]
    renamed["name"] = "GenerationIdOrMemberEpoch"
    return found


SCHEMAS = schemas_known()
STRUCTS = {name: StructField(schema) for name, schema in SCHEMAS.items()}


def knows(cls: type[Any], version: int) -> bool:
    # kafka-python's oldest versions are Kafka 4's; only Produce is declared from below that, and is the same there.
    schema = SCHEMAS.get(cls.__name__)
    return schema is not None and version <= Versions.parse(schema["validVersions"]).last


KNOWN = [case for case in CASES if knows(*case)]
COMPARED = [cls for cls in MESSAGES if cls.__name__ in SCHEMAS]


def test_what_kafka_python_lacks_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = {}
    for api in APIS.values():
        sides = [[v for v in api.versions if not knows(cls, v)] for cls in (api.request, api.response)]
        assert sides[0] == sides[1]
        if sides[0]:
            lacking[api.name] = str(Versions(sides[0][0], sides[0][-1]))
    with capsys.disabled():
        print(f"\nkafka-python is asked in {len(KNOWN)} of {len(CASES)} messages and versions; it lacks: ", end="")
        print(", ".join(f"{name} {versions}" for name, versions in lacking.items()))
    assert lacking == LACKING


@pytest.mark.parametrize("cls", COMPARED, ids=[cls.__name__ for cls in COMPARED])
def test_a_declaration_says_what_kafkas_schema_says(cls: type[Any]) -> None:
    schema, message = SCHEMAS[cls.__name__], message_of(cls)
    assert schema.get("apiKey", -1) == message.key
    assert Versions.parse(schema["flexibleVersions"]) == message.flexible
    check_fields(message.struct, schema["fields"], [version for known, version in KNOWN if known is cls])


def check_fields(kind: Struct, schemas: list[dict[str, Any]], compared: list[int]) -> None:
    declared = [f for f in kind.fields if any(version in f.versions for version in compared)]
    schemas = [schema for schema in schemas if versions_in(schema["versions"], compared)]
    assert [f.name for f in declared] == [snake_case(schema["name"]) for schema in schemas]
    for f, schema in zip(declared, schemas, strict=True):
        check_field(f, schema, compared)


def check_field(f: Field, schema: dict[str, Any], compared: list[int]) -> None:
    versions = versions_in(schema["versions"], compared)
    assert [version for version in compared if version in f.versions] == versions, f.name
    assert [version for version in versions if version in f.nullable] == versions_in(
        schema.get("nullableVersions", "none"), versions
    ), f.name
    assert f.tag == schema.get("tag"), f.name
    element = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
    name = schema["type"].removeprefix("[]")
    assert isinstance(f.kind, ArrayKind) == schema["type"].startswith("[]"), f.name
    if isinstance(element, Struct):
        check_fields(element, schema["fields"], compared)
    else:
        assert KIND_NAMES[element] == name, f.name
    # Between the ends a default matters where the field does not travel; elsewhere ours may be handier than Kafka's.
    if f.tag is not None or versions != compared:
        assert default_of(f) == default_in(schema), f.name


def default_of(f: Field) -> Any:
    assert f.default is not REQUIRED, f.name
    if isinstance(f.kind, Struct):
        return "struct" if f.default == f.kind.make() else f.default
    return [] if f.default is list else f.default


def versions_in(text: str, compared: list[int]) -> list[int]:
    return [version for version in compared if version in Versions.parse(text)]


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def default_in(schema: dict[str, Any]) -> Any:
    default, name = schema.get("default"), schema["type"]
    if default == "null":
        return None
    if name.startswith("[]"):
        return []
    if name == "bool":
        return default in (True, "true")
    if name.startswith(("int", "uint")):
        return int(str(default or 0), 0)
    if name == "float64":
        return float(default or 0)
    return {"string": default or "", "uuid": bytes(16), "bytes": b"", "records": b""}.get(name, "struct")


@pytest.mark.parametrize(("cls", "version"), KNOWN, ids=case_names(KNOWN))
def test_kafka_python_writes_and_reads_the_same_bytes(cls: type[Any], version: int) -> None:
    message = message_of(cls)
    described, flexible = STRUCTS[message.name], version in message.flexible
    for example in drawn(cls, version):
        encoded = encode_message(example, version)
        theirs = described.encode(told(message.struct, example, version), version, flexible, flexible)
        assert theirs == encoded
        assert decode_message(cls, version, theirs) == example
        parsed = described.decode(io.BytesIO(encoded), version, flexible, flexible)
        assert from_plain(cls, heard(message.struct, parsed)) == example


def told(kind: Kind, value: Any, version: int) -> Any:
    """A value in kafka-python's terms: dictionaries, uuid objects, and only those tagged fields that must travel."""
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [told(kind.element, element, version) for element in value]
    if isinstance(kind, Struct):
        going = [
            f for f in kind.tagged_at(version) if getattr(value, f.name) != ([] if f.default is list else f.default)
        ]
        return {f.name: told(f.kind, getattr(value, f.name), version) for f in (*kind.at(version), *going)}
    return uuid.UUID(bytes=value) if kind is types.UUID else value


def heard(kind: Kind, value: Any) -> Any:
    """The other way: a zero uuid is None to kafka-python."""
    if kind is types.UUID:
        return value.bytes if value else types.ZERO_UUID
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [heard(kind.element, element) for element in value]
    if isinstance(kind, Struct):
        return {f.name: heard(f.kind, value[f.name]) for f in kind.fields if f.name in value}
    return value
