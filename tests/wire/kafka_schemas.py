"""Declarations compared with Kafka's own schemas, which are JSON files inside its jars (kafka-python carries some too).

This finds what bytes cannot tell: a field that may be null but never was, a default that did not travel, a name.
"""

import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kwire.wire import types
from kwire.wire.schema import REQUIRED, ArrayKind, Field, Kind, Struct, Versions, message_of

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
# The entity types of Kafka that are names which belong to scopes.
ENTITY_TYPES = {"topicName", "groupId", "transactionalId"}
SCHEMA_FOLDER = "common/message/"


def schemas_in(jars: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Every schema in these jars by its name; where two have one of the same name, the first counts."""
    found: dict[str, dict[str, Any]] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as files:
            for path in files.namelist():
                if path.startswith(SCHEMA_FOLDER) and path.endswith(".json"):
                    schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", files.read(path).decode()))
                    found.setdefault(schema["name"], schema)
    for schema in found.values():
        common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
        _spell_out(schema.get("fields", []), common)
    return found


def _spell_out(fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> None:
    """Put the fields of a struct that is described once for the whole message where it is used."""
    for field in fields:
        name = field["type"].removeprefix("[]")
        if name in common:
            field["fields"] = common[name]
        _spell_out(field.get("fields", []), common)


def check_declaration(cls: type[Any], schema: dict[str, Any], compared: list[int]) -> None:
    """The declaration says what Kafka's schema says, in the compared versions."""
    message = message_of(cls)
    # The key in a record's schema is its type, which is no part of our declaration but of `RECORD_TYPES`.
    assert message.key in (-1, schema.get("apiKey", -1))
    flexible = Versions.parse(schema["flexibleVersions"])
    assert [v for v in compared if v in message.flexible] == [v for v in compared if v in flexible]
    _check_fields(message.struct, schema["fields"], compared)


def _check_fields(kind: Struct, schemas: list[dict[str, Any]], compared: list[int]) -> None:
    declared = [f for f in kind.fields if any(version in f.versions for version in compared)]
    schemas = [schema for schema in schemas if _carried(schema, compared)]
    assert [f.name for f in declared] == [snake_case(schema["name"]) for schema in schemas]
    for f, schema in zip(declared, schemas, strict=True):
        _check_field(f, schema, compared)


def _check_field(f: Field, schema: dict[str, Any], compared: list[int]) -> None:
    versions = _carried(schema, compared)
    assert [version for version in compared if version in f.versions] == versions, f.name
    assert [version for version in versions if version in f.nullable] == _versions_in(
        schema.get("nullableVersions", "none"), versions
    ), f.name
    assert f.tag == schema.get("tag"), f.name
    element = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
    name = schema["type"].removeprefix("[]")
    assert isinstance(f.kind, ArrayKind) == schema["type"].startswith("[]"), f.name
    if isinstance(element, Struct):
        # A struct can be carried by fewer versions than the message has; what it says of others means nothing.
        _check_fields(element, schema["fields"], versions)
    else:
        assert KIND_NAMES[element] == name, f.name
    entity_type = schema.get("entityType")
    if entity_type in ENTITY_TYPES:
        assert f.entity is not None, f.name
        assert f.entity.name == entity_type, f.name
    # Between the ends a default matters where the field does not travel; elsewhere ours may be handier than Kafka's.
    if f.tag is not None or versions != compared:
        assert _default_of(f) == _default_in(schema), f.name


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _default_of(f: Field) -> Any:
    assert f.default is not REQUIRED, f.name
    if isinstance(f.kind, Struct):
        return "struct" if f.default == f.kind.make() else f.default
    return [] if f.default is list else f.default


def _default_in(schema: dict[str, Any]) -> Any:
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


def _carried(schema: dict[str, Any], compared: list[int]) -> list[int]:
    """The versions with a field; for a tagged one it is enough to say in which versions it is tagged."""
    return _versions_in(schema.get("versions") or schema["taggedVersions"], compared)


def _versions_in(text: str, compared: list[int]) -> list[int]:
    return [version for version in compared if version in Versions.parse(text)]
