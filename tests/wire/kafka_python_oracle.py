"""kafka-python's schemas of Kafka's messages, and what its encoders must agree to."""

import io
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from kafka.protocol.schemas import StructField, load_json

from kwire.wire import types
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.schema import ArrayKind, Kind, Struct, Versions, message_of
from kwire.wire.spec import from_plain
from tests.wire.cases import MESSAGES


def _schemas_known() -> dict[str, dict[str, Any]]:
    found = {}
    for cls in MESSAGES:
        with suppress(FileNotFoundError):
            found[cls.__name__] = load_json(cls.__name__)
    # Kafka 4.4 gave one field another name.
    (renamed,) = [f for f in found["TxnOffsetCommitRequest"]["fields"] if f["name"] == "GenerationId"]
    renamed["name"] = "GenerationIdOrMemberEpoch"
    return found


SCHEMAS = _schemas_known()


def knows(cls: type[Any], version: int) -> bool:
    # kafka-python's oldest versions are Kafka 4's; only Produce is declared from below that, and is the same there.
    schema = SCHEMAS.get(cls.__name__)
    return schema is not None and version <= Versions.parse(schema["validVersions"]).last


def check_with_kafka_python(cls: type[Any], version: int, examples: Sequence[Any]) -> None:
    """Both sides write the same bytes and read them as the same message."""
    message = message_of(cls)
    described, flexible = _described(message.name), version in message.flexible
    for example in examples:
        encoded = encode_message(example, version)
        theirs = described.encode(_told(message.struct, example, version), version, flexible, flexible)
        assert theirs == encoded
        assert decode_message(cls, version, theirs) == example
        parsed = described.decode(io.BytesIO(encoded), version, flexible, flexible)
        assert from_plain(cls, _heard(message.struct, parsed)) == example


@cache
def _described(name: str) -> StructField:
    return StructField(SCHEMAS[name])


def _told(kind: Kind, value: Any, version: int) -> Any:
    """A value in kafka-python's terms: dictionaries, uuid objects, and only those tagged fields that must travel."""
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_told(kind.element, element, version) for element in value]
    if isinstance(kind, Struct):
        going = [
            f for f in kind.tagged_at(version) if getattr(value, f.name) != ([] if f.default is list else f.default)
        ]
        return {f.name: _told(f.kind, getattr(value, f.name), version) for f in (*kind.at(version), *going)}
    return uuid.UUID(bytes=value) if kind is types.UUID else value


def _heard(kind: Kind, value: Any) -> Any:
    """The other way: a zero uuid is None to kafka-python."""
    if kind is types.UUID:
        return value.bytes if value else types.ZERO_UUID
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_heard(kind.element, element) for element in value]
    if isinstance(kind, Struct):
        return {f.name: _heard(f.kind, value[f.name]) for f in kind.fields if f.name in value}
    return value
