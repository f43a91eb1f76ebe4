"""Columns of a table from the JSON Schemas of a topic, and how a table that is there already takes in new ones.

A payload's fields are columns, in the order in which the schemas name them; behind them stand the metadata columns, the
same for every table. A type is the name of a simple one as Spark's DDL has it, a `Struct` or an `Array`. What has no
type of its own in a table, because the schema leaves it open or allows several kinds, is text: a JSON string without
its quotes, anything else as JSON.

Growth is additive: `additions` says what a table lacks, also inside its structs. Nothing is ever removed, renamed or
rewritten; a column that would have to change its type is a `ColumnClash`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

TEXT = "string"


class Struct(NamedTuple):
    fields: "tuple[Column, ...]"


class Array(NamedTuple):
    element: "ColumnType"


ColumnType: TypeAlias = str | Struct | Array


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct: its name as in the payload, and its type."""

    name: str
    type: ColumnType

    @property
    def ddl(self) -> str:
        """As CREATE TABLE takes it."""
        return f"{quoted(self.name)} {ddl(self.type)}"


class ColumnClash(ValueError):
    """Two columns would have one name, or one column two types."""


class TooManyFields(ValueError):
    """A schema says more than a table can hold."""


class TableNameClash(ValueError):
    """Two topics would have one table."""


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
# The server allows schemas of 40 levels; references and combinations can make more of them.
TYPE_DEPTH_MAX = 50
# A small schema whose references fan out can describe more fields than there is memory.
PLACES_MAX = 20_000

# While schemas are read: a type of which nothing is said yet. It takes what another schema says of the same value.
_OPEN = ""

_SIMPLE_TYPES = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": TEXT}
_SIMPLE_VALUES = {bool: "boolean", int: "bigint", float: "double", str: TEXT}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def ddl(column_type: ColumnType) -> str:
    """A type as Spark's DDL writes it."""
    if isinstance(column_type, Struct):
        return "struct<" + ",".join(f"{quoted(one.name)}:{ddl(one.type)}" for one in column_type.fields) + ">"
    if isinstance(column_type, Array):
        return f"array<{ddl(column_type.element)}>"
    return column_type


# --- names of tables


def table_name(topic: str) -> str:
    """The table of a topic, without `kwire.`: characters outside letters, digits and underscore become underscores."""
    return "".join(one if one.isascii() and (one.isalnum() or one == "_") else "_" for one in topic)


def table_names(topics: Iterable[str], *, with_dead_letters: bool = True) -> dict[str, str]:
    """The table of each topic; TableNameClash if two of them, or their dead letters, would share one."""
    owners: dict[str, str] = {}
    tables = {topic: table_name(topic) for topic in dict.fromkeys(topics)}
    for topic, table in tables.items():
        for name in (table, table + DEAD_LETTER_SUFFIX) if with_dead_letters else (table,):
            other = owners.setdefault(name, topic)
            if other != topic:
                raise TableNameClash(f"the topics {other} and {topic} would share the table kwire.{name}")
    return tables


# --- from schemas


def table_columns(schemas: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """All columns of the table of a topic with these schemas, one for each event type."""
    return (*payload_columns(schemas), *METADATA_COLUMNS)


def payload_columns(schemas: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The fields that the schemas name, and `value`, the payload as text, if one of them names none."""
    found: list[Column] = []
    for schema in schemas:
        payload_type = _payload_type(schema)
        if isinstance(payload_type, Struct):
            found = list(_joined(found, payload_type.fields, _wider))
    if has_open_payload(schemas):
        if any(column.name == VALUE_COLUMN.name for column in found):
            raise ColumnClash("a payload without named fields would be the column value, but there is a field value")
        found.append(VALUE_COLUMN)
    _check_names(found, "the payload")
    for column in found:
        if column.name.lower() in METADATA_NAMES:
            raise ColumnClash(f"the payload field {column.name} has the name of a column that every table has")
    return tuple(found)


def has_open_payload(schemas: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some events of such a topic have no fields that a schema names: they are kept as text."""
    return not schemas or any(not isinstance(_payload_type(schema), Struct) for schema in schemas)


def _payload_type(schema: Mapping[str, Any]) -> ColumnType:
    # Where there is no `eventType`, the event type stands in `type`, which is no keyword of JSON Schema then.
    payload = schema if "eventType" in schema else {key: value for key, value in schema.items() if key != "type"}
    return _settled(_Reader(payload).type_of(payload, ()))


def _check_names(columns: Iterable[Column], place: str) -> None:
    """SQL does not tell large letters from small ones, so fields must differ in more than that."""
    seen: dict[str, str] = {}
    for column in columns:
        if not column.name:
            raise ColumnClash(f"{place} has a field without a name")
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise ColumnClash(f"{place} has the fields {other} and {column.name}, which SQL does not tell apart")
        inner: ColumnType = column.type
        while isinstance(inner, Array):
            inner = inner.element
        if isinstance(inner, Struct):
            _check_names(inner.fields, f"the field {column.name}")


class _Reader:
    """Reads one schema document, in which its references point."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._places = 0

    def type_of(self, schema: Any, seen: tuple[str, ...]) -> ColumnType:
        """What values of a schema are, as far as it says that."""
        if not isinstance(schema, Mapping) or len(seen) > TYPE_DEPTH_MAX:
            return _OPEN
        self._places += 1
        if self._places > PLACES_MAX:
            raise TooManyFields(f"the schema describes more than {PLACES_MAX:,} fields, too many for a table")
        found = _any_of(list(self._own_types(schema, seen)))
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        # A type inside itself has no end as a column: it is open, and so text, from there on.
        if isinstance(reference, str) and reference not in seen:
            found = _both(found, self.type_of(_find(self._document, reference), (*seen, reference)))
        below = (*seen, "")
        for part in _list_of(schema.get("allOf")):
            found = _both(found, self.type_of(part, below))
        for name in ("anyOf", "oneOf"):
            kinds = [self.type_of(part, below) for part in _list_of(schema.get(name)) if not _is_null(part)]
            found = _any_of([_both(found, kind) for kind in kinds]) if kinds else found
        conditional = [schema.get("then"), schema.get("else"), *_values_of(schema.get("dependentSchemas"))]
        for part in conditional:
            # It counts for some values; for the others there is what was found so far.
            if part is not None:
                found = _sometimes(found, self.type_of(part, below))
        return found

    def _own_types(self, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Iterator[ColumnType]:
        """The kinds of values that a schema itself allows, null left out: every column may be null."""
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
    """What `#/$defs/name` or `#anchor` points to; the server has refused schemas in which one points nowhere."""
    place = reference.partition("#")[2]
    if not place:
        return document
    if not place.startswith("/"):
        return _anchored(document, place)
    found: Any = document
    for part in place[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _anchored(place: Any, name: str) -> Any:
    if isinstance(place, Mapping):
        if name in (place.get("$anchor"), place.get("$dynamicAnchor")):
            return place
        place = list(place.values())
    if isinstance(place, list):
        return next((found for one in place if (found := _anchored(one, name)) is not None), None)
    return None


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values_of(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _settled(found: ColumnType) -> ColumnType:
    """The type when all is read. What is still open is text; so are objects and arrays of which nothing more is known:
    no table format has a struct without fields."""
    if isinstance(found, Struct):
        return Struct(tuple(Column(one.name, _settled(one.type)) for one in found.fields)) if found.fields else TEXT
    if isinstance(found, Array):
        return TEXT if found.element == _OPEN else Array(_settled(found.element))
    return found or TEXT


def _both(one: ColumnType, other: ColumnType) -> ColumnType:
    """The type of values that both schemas take: each may say what the other leaves open."""
    if one == other or other == _OPEN:
        return one
    if one == _OPEN:
        return other
    if isinstance(one, Struct) and isinstance(other, Struct):
        return Struct(_joined(one.fields, other.fields, _both))
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(_both(one.element, other.element))
    # Two kinds of number have the whole ones in common. Other kinds have none; text holds whatever comes all the same.
    return "bigint" if {one, other} == {"bigint", "double"} else TEXT


def _any_of(kinds: Sequence[ColumnType]) -> ColumnType:
    """The narrowest type that holds values of all these; open of none."""
    return functools.reduce(_wider, kinds) if kinds else _OPEN


def _sometimes(found: ColumnType, kind: ColumnType) -> ColumnType:
    """Of values to which a second schema applies under a condition."""
    # Where nothing but the condition says what a value is, its fields are all there is to know.
    return kind if found == _OPEN and isinstance(kind, Struct) else _wider(found, _both(found, kind))


def _wider(one: ColumnType, other: ColumnType) -> ColumnType:
    """The type of values that one of two schemas takes."""
    if one == other:
        return one
    if _OPEN in (one, other):
        return _OPEN
    if {one, other} == {"bigint", "double"}:
        return "double"
    if isinstance(one, Struct) and isinstance(other, Struct):
        return Struct(_joined(one.fields, other.fields, _wider))
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(_wider(one.element, other.element))
    return TEXT


def _joined(
    fields: Iterable[Column], more: Iterable[Column], join: Callable[[ColumnType, ColumnType], ColumnType]
) -> tuple[Column, ...]:
    """All fields; the types of one that is in both are joined."""
    found = {column.name: column for column in fields}
    for column in more:
        other = found.get(column.name)
        found[column.name] = column if other is None else Column(column.name, join(other.type, column.type))
    return tuple(found.values())


# --- a table that is there already


class Addition(NamedTuple):
    """A column that a table lacks: the path to it, its type, and the column it follows (None: it is the first)."""

    path: tuple[str, ...]
    type: ColumnType
    after: str | None


# How Iceberg and Spark name what is inside an array.
ELEMENT = "element"


def additions(existing: Sequence[Column], wanted: Sequence[Column]) -> list[Addition]:
    """What has to be added to a table to hold these columns; ColumnClash if that is not enough."""
    return list(_additions(existing, wanted, ()))


def merged(existing: Sequence[Column], wanted: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of the table when that is done."""
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
            raise ColumnClash(f"the table has a column {_dotted(path, old.name)}, {column.name} is not told from it")
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
            f"the column {_dotted(path)} is {ddl(old)} in the table and would be {ddl(new)} by the schemas; "
            "a column never changes its type"
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


# --- Spark's own description of a type, as DataFrame.schema.jsonValue() has it

_SPARK_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns that a Spark schema describes."""
    return tuple(Column(field["name"], _type_from_spark(field["type"])) for field in schema["fields"])


def _type_from_spark(described: Any) -> ColumnType:
    if isinstance(described, str):
        return _SPARK_NAMES.get(described, described)
    if described["type"] == "struct":
        return Struct(columns_of(described))
    if described["type"] == "array":
        return Array(_type_from_spark(described["elementType"]))
    return f"map<{ddl(_type_from_spark(described['keyType']))},{ddl(_type_from_spark(described['valueType']))}>"
