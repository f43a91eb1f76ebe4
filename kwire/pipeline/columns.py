"""Derives the columns of a table from the JSON Schemas of a topic, and the columns to add to an existing table.

A table has one column for each field of the payload, in the order of the schemas. After them it has the metadata
columns, which are the same for every table. A type is the name of a simple type in Spark's DDL, a `Struct` or an
`Array`. If the schema of a field gives no type or several types, its values are stored as text: strings without their
quotes, other values as JSON.

A table is changed only by adding columns. `additions` returns the columns that a table lacks, also inside structs.
Columns are never removed, renamed or rewritten. If a column would have to change its type, `ColumnClash` is raised.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

TEXT = "string"


class Struct(NamedTuple):
    """A struct type with its fields."""

    fields: "tuple[Column, ...]"


class Array(NamedTuple):
    """An array type with the type of its elements."""

    element: "ColumnType"


ColumnType: TypeAlias = str | Struct | Array


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct. It has the name of the field in the payload, and a type."""

    name: str
    type: ColumnType

    @property
    def ddl(self) -> str:
        """The column in the syntax of CREATE TABLE."""
        return f"{quoted(self.name)} {ddl(self.type)}"


class ColumnClash(ValueError):
    """Two columns would have the same name, or one column would have two types."""


class TooManyFields(ValueError):
    """A schema describes more fields than a table can have."""


class TableNameClash(ValueError):
    """Two topics would have the same table name."""


VALUE_COLUMN = Column("value", TEXT)
METADATA_COLUMNS = (
    Column("event_id", TEXT),
    Column("event_type", TEXT),
    Column("kafka_partition", "int"),
    Column("kafka_offset", "bigint"),
    Column("kafka_timestamp", "timestamp"),
    Column("kafka_key", "binary"),
    Column("kafka_headers", Array(Struct((Column("key", TEXT), Column("value", "binary"))))),
)
METADATA_NAMES = tuple(column.name for column in METADATA_COLUMNS)

DEAD_LETTER_SUFFIX = "_dead_letters"
# The maximum depth of a type. The server allows 40 levels in a schema, but references and combinations can add more.
TYPE_DEPTH_MAX = 50
# The maximum number of subschemas that are read. A small schema with many references can describe more fields than fit
# in memory.
SUBSCHEMAS_MAX = 20_000

# The type of a value whose schema gives no type. It is used only while a schema is read. If no other part of the schema
# gives the type, `_resolved` replaces it by text.
_UNKNOWN = ""

_SIMPLE_TYPES = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": TEXT}
_SIMPLE_VALUES = {bool: "boolean", int: "bigint", float: "double", str: TEXT}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def ddl(column_type: ColumnType) -> str:
    """Return the type in Spark's DDL syntax."""
    if isinstance(column_type, Struct):
        return "struct<" + ",".join(f"{quoted(one.name)}:{ddl(one.type)}" for one in column_type.fields) + ">"
    if isinstance(column_type, Array):
        return f"array<{ddl(column_type.element)}>"
    return column_type


# --- names of tables


def table_name(topic: str) -> str:
    """Return the table name of a topic, without `kwire.`. Characters except ASCII letters and digits become `_`."""
    return "".join(one if one.isascii() and (one.isalnum() or one == "_") else "_" for one in topic)


def table_names(topics: Iterable[str], *, with_dead_letters: bool = True) -> dict[str, str]:
    """Return the table name of each topic.

    TableNameClash is raised if two topics, or a topic and the dead letters of another, would have the same table.
    """
    owners: dict[str, str] = {}
    tables = {topic: table_name(topic) for topic in dict.fromkeys(topics)}
    for topic, table in tables.items():
        for name in (table, table + DEAD_LETTER_SUFFIX) if with_dead_letters else (table,):
            other = owners.setdefault(name, topic)
            if other != topic:
                raise TableNameClash(
                    f"topics {other} and {topic} would share the table kwire.{name}: write them to different warehouses"
                )
    return tables


# --- columns from schemas


def table_columns(schemas: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return all columns of the table of a topic with these schemas (one schema per event type)."""
    return (*payload_columns(schemas), *METADATA_COLUMNS)


def payload_columns(schemas: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return a column for each field that the schemas name.

    If one of the schemas names no fields, the column `value` is added, which has the payload as text.
    """
    found: list[Column] = []
    for schema in schemas:
        payload_type = _payload_type(schema)
        if isinstance(payload_type, Struct):
            found = list(_merged_fields(found, payload_type.fields, _union))
    if has_open_payload(schemas):
        if any(column.name == VALUE_COLUMN.name for column in found):
            raise ColumnClash(
                "the column value is needed for payloads without named fields, but a schema has a field named value"
            )
        found.append(VALUE_COLUMN)
    _check_names(found, "the payload")
    for column in found:
        if column.name.lower() in METADATA_NAMES:
            raise ColumnClash(f"the payload field {column.name} has the same name as a metadata column")
    return tuple(found)


def has_open_payload(schemas: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the topic has events whose schema names no fields. Their payload is stored as text."""
    return not schemas or any(not isinstance(_payload_type(schema), Struct) for schema in schemas)


def _payload_type(schema: Mapping[str, Any]) -> ColumnType:
    # If the schema has no key `eventType`, the key `type` holds the event type, so it is not a JSON Schema keyword.
    payload = schema if "eventType" in schema else {key: value for key, value in schema.items() if key != "type"}
    return _resolved(_Reader(payload).type_of(payload, ()))


def _check_names(columns: Iterable[Column], owner: str) -> None:
    """Check that the names are unique. Names that differ only in case count as equal, because SQL ignores case."""
    seen: dict[str, str] = {}
    for column in columns:
        if not column.name:
            raise ColumnClash(f"{owner} has a field without a name")
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise ColumnClash(
                f"{owner} has the fields {other} and {column.name}, which differ only in case: SQL ignores case"
            )
        inner: ColumnType = column.type
        while isinstance(inner, Array):
            inner = inner.element
        if isinstance(inner, Struct):
            _check_names(inner.fields, f"the field {column.name}")


class _Reader:
    """Derives types from one schema document and its references."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._subschema_count = 0

    def type_of(self, schema: Any, seen: tuple[str, ...]) -> ColumnType:
        """Return the type that a schema gives to its values, or `_UNKNOWN`.

        `seen` has an entry for each enclosing level: the reference that was followed, or "".
        """
        if not isinstance(schema, Mapping) or len(seen) > TYPE_DEPTH_MAX:
            return _UNKNOWN
        self._subschema_count += 1
        if self._subschema_count > SUBSCHEMAS_MAX:
            raise TooManyFields(f"the schema describes more than {SUBSCHEMAS_MAX:,} fields, the maximum for a table")
        found = _union_of(list(self._own_types(schema, seen)))
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        # A column cannot have a recursive type. So a reference is not followed again inside its own target: the type of
        # the inner value is unknown, and the value is stored as text.
        if isinstance(reference, str) and reference not in seen:
            found = _intersection(found, self.type_of(_find(self._document, reference), (*seen, reference)))
        below = (*seen, "")
        for part in _list_of(schema.get("allOf")):
            found = _intersection(found, self.type_of(part, below))
        for name in ("anyOf", "oneOf"):
            kinds = [self.type_of(part, below) for part in _list_of(schema.get(name)) if not _is_null(part)]
            found = _union_of([_intersection(found, kind) for kind in kinds]) if kinds else found
        conditional = [schema.get("then"), schema.get("else"), *_values_of(schema.get("dependentSchemas"))]
        for part in conditional:
            # This part of the schema applies only to some values. Other values have the type that was found so far.
            if part is not None:
                found = _conditional(found, self.type_of(part, below))
        return found

    def _own_types(self, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Iterator[ColumnType]:
        """Yield the types that the schema itself allows. Null is omitted, because every column may be null."""
        named = schema.get("type")
        if named is not None:
            for kind in [named] if isinstance(named, str) else _list_of(named):
                if kind == "object":
                    yield self._object(schema, seen)
                elif kind == "array":
                    yield self._array(schema, seen)
                elif kind != "null":
                    yield _SIMPLE_TYPES.get(kind, TEXT)
        elif "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else _list_of(schema["enum"])
            yield from (_SIMPLE_VALUES.get(type(value), TEXT) for value in values if value is not None)
        elif "properties" in schema or "required" in schema:
            yield self._object(schema, seen)
        elif "items" in schema:
            yield self._array(schema, seen)

    def _object(self, schema: Mapping[str, Any], seen: tuple[str, ...]) -> ColumnType:
        properties = schema.get("properties")
        fields = dict(properties) if isinstance(properties, Mapping) else {}
        for name in _list_of(schema.get("required")):
            fields.setdefault(name, {})
        below = (*seen, "")
        return Struct(tuple(Column(name, self.type_of(one, below)) for name, one in fields.items() if one is not False))

    def _array(self, schema: Mapping[str, Any], seen: tuple[str, ...]) -> ColumnType:
        return TEXT if "prefixItems" in schema else Array(self.type_of(schema.get("items"), (*seen, "")))


def _find(document: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a reference such as `#/$defs/name` or `#anchor`.

    The target always exists, because the server refuses schemas with dangling references.
    """
    fragment = reference.partition("#")[2]
    if not fragment:
        return document
    if not fragment.startswith("/"):
        return _find_anchor(document, fragment)
    found: Any = document
    for part in fragment[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _find_anchor(node: Any, name: str) -> Any:
    if isinstance(node, Mapping):
        if name in (node.get("$anchor"), node.get("$dynamicAnchor")):
            return node
        node = list(node.values())
    if isinstance(node, list):
        return next((found for one in node if (found := _find_anchor(one, name)) is not None), None)
    return None


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values_of(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _resolved(found: ColumnType) -> ColumnType:
    """Return the final type: text in place of unknown types, structs without fields and arrays of an unknown type.

    Table formats do not support structs without fields.
    """
    if isinstance(found, Struct):
        return Struct(tuple(Column(one.name, _resolved(one.type)) for one in found.fields)) if found.fields else TEXT
    if isinstance(found, Array):
        return TEXT if found.element == _UNKNOWN else Array(_resolved(found.element))
    return found or TEXT


def _intersection(one: ColumnType, other: ColumnType) -> ColumnType:
    """Return the type of values that match both of two schemas. If one type is unknown, the other is used."""
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if isinstance(one, Struct) and isinstance(other, Struct):
        return Struct(_merged_fields(one.fields, other.fields, _intersection))
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(_intersection(one.element, other.element))
    # Values that are both "bigint" and "double" are whole numbers. Other pairs of types have no common values, and text
    # can store any value.
    return "bigint" if {one, other} == {"bigint", "double"} else TEXT


def _union_of(kinds: Sequence[ColumnType]) -> ColumnType:
    """Return the narrowest type that holds values of all these types, or `_UNKNOWN` if `kinds` is empty."""
    return functools.reduce(_union, kinds) if kinds else _UNKNOWN


def _conditional(found: ColumnType, kind: ColumnType) -> ColumnType:
    """Return the column type for values that all match `found`, and of which only some also match a schema of type
    `kind`."""
    # If `found` is unknown and `kind` is a struct, the fields of the struct are used.
    return kind if found == _UNKNOWN and isinstance(kind, Struct) else _union(found, _intersection(found, kind))


def _union(one: ColumnType, other: ColumnType) -> ColumnType:
    """Return the type of values that match one of two schemas."""
    if one == other:
        return one
    if _UNKNOWN in (one, other):
        return _UNKNOWN
    if {one, other} == {"bigint", "double"}:
        return "double"
    if isinstance(one, Struct) and isinstance(other, Struct):
        return Struct(_merged_fields(one.fields, other.fields, _union))
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(_union(one.element, other.element))
    return TEXT


def _merged_fields(
    fields: Iterable[Column], more: Iterable[Column], join: Callable[[ColumnType, ColumnType], ColumnType]
) -> tuple[Column, ...]:
    """Return the fields of both lists. If both have a field of the same name, its types are combined with `join`."""
    found = {column.name: column for column in fields}
    for column in more:
        other = found.get(column.name)
        found[column.name] = column if other is None else Column(column.name, join(other.type, column.type))
    return tuple(found.values())


# --- additions to an existing table


class Addition(NamedTuple):
    """A column to add to a table: its path, its type, and the column before it (None to add it as the first)."""

    path: tuple[str, ...]
    type: ColumnType
    after: str | None


# The name of array elements in Iceberg and Spark.
ELEMENT = "element"


def additions(existing: Sequence[Column], wanted: Sequence[Column]) -> list[Addition]:
    """Return the columns of `wanted` that must be added to the table. Raises ColumnClash if types or names conflict."""
    return list(_additions(existing, wanted, ()))


def merged(existing: Sequence[Column], wanted: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the table after the additions."""
    columns = list(existing)
    for path, column_type, after in additions(existing, wanted):
        columns = _with(columns, path, Column(path[-1], column_type), after)
    return tuple(columns)


def _additions(existing: Sequence[Column], wanted: Sequence[Column], path: tuple[str, ...]) -> Iterator[Addition]:
    there = {column.name.lower(): column for column in existing}
    before: str | None = None
    for column in wanted:
        old = there.get(column.name.lower())
        if old is None:
            yield Addition((*path, column.name), column.type, before)
        elif old.name != column.name:
            raise ColumnClash(
                f"the table has a column {_dotted(path, old.name)}, which differs from {column.name} only in case"
            )
        else:
            yield from _inner_additions(old.type, column.type, (*path, column.name))
        before = column.name


def _inner_additions(old: ColumnType, new: ColumnType, path: tuple[str, ...]) -> Iterator[Addition]:
    if isinstance(old, Struct) and isinstance(new, Struct):
        yield from _additions(old.fields, new.fields, path)
    elif isinstance(old, Array) and isinstance(new, Array):
        yield from _inner_additions(old.element, new.element, (*path, ELEMENT))
    elif old not in (new, TEXT) and (old, new) != ("double", "bigint"):
        raise ColumnClash(
            f"column {_dotted(path)} has the type {ddl(old)} in the table and {ddl(new)} in the schemas: "
            "a column cannot change its type"
        )


def _dotted(path: tuple[str, ...], *more: str) -> str:
    return ".".join((*path, *more))


def _with(columns: Sequence[Column], path: tuple[str, ...], added: Column, after: str | None) -> list[Column]:
    if len(path) == 1:
        position = 0 if after is None else 1 + next(at for at, one in enumerate(columns) if one.name == after)
        return [*columns[:position], added, *columns[position:]]
    return [
        Column(one.name, _with_inner(one.type, path[1:], added, after)) if one.name == path[0] else one
        for one in columns
    ]


def _with_inner(old: ColumnType, path: tuple[str, ...], added: Column, after: str | None) -> ColumnType:
    if isinstance(old, Array):
        return Array(_with_inner(old.element, path[1:], added, after))
    assert isinstance(old, Struct)
    return Struct(tuple(_with(old.fields, path, added, after)))


# --- Spark's description of a type, as returned by DataFrame.schema.jsonValue()

_SPARK_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns that a Spark schema describes."""
    return tuple(Column(field["name"], _type_from_spark(field["type"])) for field in schema["fields"])


def _type_from_spark(described: Any) -> ColumnType:
    if isinstance(described, str):
        return _SPARK_NAMES.get(described, described)
    if described["type"] == "struct":
        return Struct(columns_of(described))
    if described["type"] == "array":
        return Array(_type_from_spark(described["elementType"]))
    return f"map<{ddl(_type_from_spark(described['keyType']))},{ddl(_type_from_spark(described['valueType']))}>"
