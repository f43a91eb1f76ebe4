"""What a schema may be: JSON Schema 2020-12 within bounds, complete in itself, and never slow to check with.

`jsonschema` says what is wrong with it, in words. On top of that: references stay inside the document, patterns have to
suit an engine that matches in linear time, and what checking a payload takes has a bound (`schema_costs.py`).

All of it takes milliseconds for small schemas and seconds for the largest, so the server has it done by a worker.
"""

import json
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from kwire.broker.store.schema_costs import Cost, cost_of
from kwire.broker.store.schema_document import SCHEMAS_MAX, Document, Pattern, Schema
from kwire.errors import InvalidSchema

SCHEMA_BYTES_MAX = 64 * 1024
SCHEMAS_BYTES_MAX = 128 * 1024
DEPTH_MAX = 40
EVENT_TYPE_BYTES_MAX = 256
PATTERN_LENGTH_MAX = 500
PATTERNS_MAX = 200
# Of one compiled pattern, of all that a topic has, and of what the engine remembers while it matches one.
PATTERN_BYTES_MAX = 256 * 1024
PATTERNS_BYTES_MAX = 512 * 1024
PATTERN_MEMORY_BYTES = 256 * 1024
_PATTERN_BYTES_MIN = 1024

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


class TypedSchema(NamedTuple):
    """A schema as it was given, the event type it is for, and what is left of it for JSON Schema."""

    event_type: str
    given: Schema
    schema: Schema


# --- which type a schema is for


def typed_schemas(raw: object) -> list[TypedSchema]:
    """Quick and without a look inside, but for its size; raises InvalidSchema."""
    if not isinstance(raw, list) or not raw:
        raise InvalidSchema("one or more schemas are needed, as an array", "$")
    if len(raw) > SCHEMAS_MAX:
        raise InvalidSchema(f"{len(raw)} schemas are given, {SCHEMAS_MAX} are allowed", "$")
    found: list[TypedSchema] = []
    known: set[str] = set()
    bytes_left = SCHEMAS_BYTES_MAX
    for number, given in enumerate(raw):
        path = f"$[{number}]"
        if not isinstance(given, dict):
            raise InvalidSchema("a schema is an object that names the event type it is for", path)
        size_bytes = _size_bytes(given, path)
        bytes_left -= size_bytes
        if size_bytes > SCHEMA_BYTES_MAX or bytes_left < 0:
            raise InvalidSchema(
                f"the schemas are too large: {SCHEMA_BYTES_MAX} bytes each, {SCHEMAS_BYTES_MAX} in all are allowed",
                path,
            )
        _check_depth(given, path)
        typed = _typed(given, path)
        if typed.event_type in known:
            raise InvalidSchema(f"there are two schemas for the event type {typed.event_type!r}", path)
        known.add(typed.event_type)
        found.append(typed)
    return found


def _typed(given: Schema, path: str) -> TypedSchema:
    """`eventType` names the type if it is there. Without it `type` does, and is no keyword of JSON Schema then."""
    name = "eventType" if "eventType" in given else "type"
    event_type = given.get(name)
    if event_type is None:
        raise InvalidSchema("a schema names the event type it is for: `eventType`, or else `type`", path)
    if not isinstance(event_type, str) or not 0 < len(event_type.encode()) <= EVENT_TYPE_BYTES_MAX:
        raise InvalidSchema(f"an event type is a text of 1 to {EVENT_TYPE_BYTES_MAX} bytes", f"{path}.{name}")
    return TypedSchema(event_type, given, {key: value for key, value in given.items() if key != name})


def _size_bytes(given: Schema, path: str) -> int:
    try:
        return len(msgspec.json.encode(given))
    except (RecursionError, UnicodeEncodeError):
        raise InvalidSchema("the schema is nested too deep, or has text that is none", path) from None


def _check_depth(given: Schema, path: str) -> None:
    level: list[Any] = [given]
    for _ in range(DEPTH_MAX):
        level = [inner for one in level for inner in inner_values(one)]
        if not level:
            return
    raise InvalidSchema(f"the schema is nested deeper than {DEPTH_MAX} levels", path)


def inner_values(value: object) -> list[Any]:
    """Those that an array or an object holds."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


# --- whether it is a schema, and one to work with


def costs_of(schemas: list[TypedSchema]) -> dict[str, Cost]:
    """By event type, what checking takes; raises InvalidSchema. It imports `jsonschema` and takes its time."""
    patterns = _Patterns()
    return {one.event_type: _cost(one.schema, patterns, f"$[{number}]") for number, one in enumerate(schemas)}


def _cost(schema: Schema, patterns: "_Patterns", path: str) -> Cost:
    _check_words(schema, path)
    document = Document(schema, path)
    if len(document.patterns) > PATTERNS_MAX:
        raise InvalidSchema(f"{len(document.patterns)} patterns are given, {PATTERNS_MAX} are allowed", path)
    for pattern in document.patterns:
        patterns.add(pattern)
    cost = cost_of(document, patterns.sizes_bytes)
    try:
        compiled(schema)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema(_first_line(error), path) from None
    return cost


def compiled(schema: Schema, pattern_bytes_max: int = PATTERN_BYTES_MAX) -> jsonschema_rs.Validator:
    """Formats are notes, as 2020-12 has it; nothing is ever loaded from elsewhere."""
    options = jsonschema_rs.RegexOptions(size_limit=pattern_bytes_max, dfa_size_limit=PATTERN_MEMORY_BYTES)
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=options, validate_formats=False, offline=True)


def _check_words(schema: Schema, path: str) -> None:
    from jsonschema import FormatChecker, SchemaError
    from jsonschema.validators import Draft202012Validator

    dialect = schema.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
        raise InvalidSchema(f"only {DIALECT} is served", f"{path}.$schema")
    try:
        # Patterns are for the engine that will match them, so nobody judges formats here.
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        problem = error.message
        if list(error.absolute_path)[-1:] == ["type"] and isinstance(error.instance, str):
            problem = f"{error.instance!r} is no type of JSON Schema; it has {', '.join(_JSON_TYPES)}"
        raise InvalidSchema(problem, path + error.json_path.removeprefix("$")) from None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


class _Patterns:
    """All patterns of a topic: such as an engine of linear time takes, each within its bound and all within theirs."""

    def __init__(self) -> None:
        self.sizes_bytes: dict[str, int] = {}
        self._bytes_left = PATTERNS_BYTES_MAX

    def add(self, pattern: Pattern) -> None:
        size_bytes = self.sizes_bytes.get(pattern.text)
        if size_bytes is None:
            size_bytes = self.sizes_bytes[pattern.text] = _pattern_bytes(pattern)
        self._bytes_left -= size_bytes
        if self._bytes_left < 0:
            raise InvalidSchema(
                f"all patterns of a topic may take {PATTERNS_BYTES_MAX} bytes when they are compiled", pattern.where
            )


def _pattern_bytes(pattern: Pattern) -> int:
    """What it takes when it is compiled, rounded up to a power of two. The engine only says whether a limit holds."""
    if len(pattern.text) > PATTERN_LENGTH_MAX:
        raise InvalidSchema(
            f"the pattern has {len(pattern.text)} characters, {PATTERN_LENGTH_MAX} are allowed", pattern.where
        )
    size_bytes = _PATTERN_BYTES_MIN
    while size_bytes <= PATTERN_BYTES_MAX:
        try:
            compiled({"pattern": pattern.text}, size_bytes)
            return size_bytes
        except ValueError:
            size_bytes *= 2
    raise InvalidSchema(
        f"the pattern {pattern.text!r} cannot be used: it is none, or too large, or looks around or back, which cannot "
        "be done in linear time",
        pattern.where,
    )


def canonical(value: object) -> str:
    """The same text for the same JSON."""
    return json.dumps(value, sort_keys=True)
