"""The rules for schemas: JSON Schema 2020-12, self-contained, of bounded size and with bounded checking cost.

`jsonschema` finds invalid keywords. In addition, references must refer to parts of the same document, patterns must be
valid for an engine that matches in linear time, and the cost of checking a payload is limited (`costs.py`).

Validation takes milliseconds for small schemas and seconds for the largest, so the server runs it in a worker process.
"""

import json
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from kwire.errors import InvalidSchema
from kwire.streams.event_store.schemas.costs import Cost, cost_of
from kwire.streams.event_store.schemas.document import SCHEMAS_MAX, Document, Pattern, Schema

SCHEMA_BYTES_MAX = 64 * 1024
SCHEMAS_BYTES_MAX = 128 * 1024
DEPTH_MAX = 40
EVENT_TYPE_BYTES_MAX = 256
PATTERN_LENGTH_MAX = 500
PATTERNS_MAX = 200
# Limits for one compiled pattern, for all compiled patterns of a topic, and for the cache of the engine that matches a
# pattern.
PATTERN_BYTES_MAX = 256 * 1024
PATTERNS_BYTES_MAX = 512 * 1024
PATTERN_MEMORY_BYTES = 256 * 1024
_PATTERN_BYTES_MIN = 1024

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


class TypedSchema(NamedTuple):
    """A schema with its event type.

    `given` is the schema as the client sent it. `schema` is the same without the field that names the event type.
    """

    event_type: str
    given: Schema
    schema: Schema


# --- the event type of a schema


def typed_schemas(raw: object) -> list[TypedSchema]:
    """Parse an array of schemas; raises InvalidSchema. Only event types, sizes and depth are checked.

    This is quick enough for the event loop.
    """
    if not isinstance(raw, list) or not raw:
        raise InvalidSchema("the schemas must be an array of one or more schemas", "$")
    if len(raw) > SCHEMAS_MAX:
        raise InvalidSchema(f"there are {len(raw)} schemas, at most {SCHEMAS_MAX} are allowed", "$")
    found: list[TypedSchema] = []
    known: set[str] = set()
    bytes_left = SCHEMAS_BYTES_MAX
    for number, given in enumerate(raw):
        path = f"$[{number}]"
        if not isinstance(given, dict):
            raise InvalidSchema("a schema must be an object that names its event type", path)
        size_bytes = _size_bytes(given, path)
        bytes_left -= size_bytes
        if size_bytes > SCHEMA_BYTES_MAX or bytes_left < 0:
            raise InvalidSchema(
                f"the schemas are too large: at most {SCHEMA_BYTES_MAX} bytes each and {SCHEMAS_BYTES_MAX} in total",
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
    """Return a schema with its event type, which is in the field `eventType` or, if that is absent, in `type`.

    If `type` is the event type, it is not used as the JSON Schema keyword.
    """
    name = "eventType" if "eventType" in given else "type"
    event_type = given.get(name)
    if event_type is None:
        raise InvalidSchema("a schema must name its event type in `eventType` or `type`", path)
    if not isinstance(event_type, str) or not 0 < len(event_type.encode()) <= EVENT_TYPE_BYTES_MAX:
        raise InvalidSchema(f"an event type must be a string of 1 to {EVENT_TYPE_BYTES_MAX} bytes", f"{path}.{name}")
    return TypedSchema(event_type, given, {key: value for key, value in given.items() if key != name})


def _size_bytes(given: Schema, path: str) -> int:
    try:
        return len(msgspec.json.encode(given))
    except (RecursionError, UnicodeEncodeError):
        raise InvalidSchema("the schema is nested too deep, or contains text that is not valid Unicode", path) from None


def _check_depth(given: Schema, path: str) -> None:
    level: list[Any] = [given]
    for _ in range(DEPTH_MAX):
        level = [inner for one in level for inner in inner_values(one)]
        if not level:
            return
    raise InvalidSchema(f"the schema is nested deeper than {DEPTH_MAX} levels", path)


def inner_values(value: object) -> list[Any]:
    """Return the values inside an array or an object."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


# --- validity and cost of a schema


def costs_of(schemas: list[TypedSchema]) -> dict[str, Cost]:
    """Validate schemas and return the costs of checking payloads, by event type. Raises InvalidSchema.

    This may take seconds, and it imports `jsonschema`.
    """
    patterns = _Patterns()
    return {one.event_type: _cost(one.schema, patterns, f"$[{number}]") for number, one in enumerate(schemas)}


def _cost(schema: Schema, patterns: "_Patterns", path: str) -> Cost:
    _check_keywords(schema, path)
    document = Document(schema, path)
    if len(document.patterns) > PATTERNS_MAX:
        raise InvalidSchema(f"the schema has {len(document.patterns)} patterns, at most {PATTERNS_MAX} allowed", path)
    for pattern in document.patterns:
        patterns.add(pattern)
    cost = cost_of(document, patterns.sizes_bytes)
    try:
        compiled(schema)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema(_first_line(error), path) from None
    return cost


def compiled(schema: Schema, pattern_bytes_max: int = PATTERN_BYTES_MAX) -> jsonschema_rs.Validator:
    """Compile a schema. As in 2020-12, `format` is only an annotation. Other documents are never loaded."""
    options = jsonschema_rs.RegexOptions(size_limit=pattern_bytes_max, dfa_size_limit=PATTERN_MEMORY_BYTES)
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=options, validate_formats=False, offline=True)


def _check_keywords(schema: Schema, path: str) -> None:
    from jsonschema import FormatChecker, SchemaError
    from jsonschema.validators import Draft202012Validator

    dialect = schema.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
        raise InvalidSchema(f"only {DIALECT} is supported", f"{path}.$schema")
    try:
        # Formats such as `regex` are not checked here. `_pattern_bytes` compiles each pattern with the engine that will
        # match it, so the syntax of patterns is checked there.
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        problem = error.message
        if list(error.absolute_path)[-1:] == ["type"] and isinstance(error.instance, str):
            problem = f"{error.instance!r} is not a type of JSON Schema; use one of {', '.join(_JSON_TYPES)}"
        raise InvalidSchema(problem, path + error.json_path.removeprefix("$")) from None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


class _Patterns:
    """The compiled sizes of all patterns of a topic.

    `add` refuses a pattern that a linear-time engine cannot match, and a pattern that exceeds a size limit.
    """

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
                f"the compiled patterns of a topic exceed {PATTERNS_BYTES_MAX} bytes in total", pattern.where
            )


def _pattern_bytes(pattern: Pattern) -> int:
    """Return the compiled size of a pattern, rounded up to a power of two.

    The engine reports only whether a pattern exceeds a given limit, so larger and larger limits are tried.
    """
    if len(pattern.text) > PATTERN_LENGTH_MAX:
        raise InvalidSchema(
            f"the pattern has {len(pattern.text)} characters, at most {PATTERN_LENGTH_MAX} are allowed", pattern.where
        )
    size_bytes = _PATTERN_BYTES_MIN
    while size_bytes <= PATTERN_BYTES_MAX:
        try:
            compiled({"pattern": pattern.text}, size_bytes)
            return size_bytes
        except ValueError:
            size_bytes *= 2
    raise InvalidSchema(
        f"the pattern {pattern.text!r} cannot be used: it is invalid, too large, or uses lookaround or backreferences, "
        "which cannot be matched in linear time",
        pattern.where,
    )


def canonical(value: object) -> str:
    """Return the JSON text of a value. Equal values have the same text."""
    return json.dumps(value, sort_keys=True)
