"""`jsonschema`, which checks schemas, and `jsonschema-rs`, which checks events, agree."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import FormatChecker, SchemaError
from jsonschema.validators import Draft202012Validator

from kwire.errors import InvalidSchema, SchemaViolation
from kwire.streams.event_store.schemas.rules import compiled
from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas
from tests.support.effort import examples

# Cases that once showed a difference, or are worth a check in every run; Hypothesis adds others.
KEPT_SEEDS = (0, 1, 2, 3, 4, 5, 6, 7, 1017, 1203)
SCHEMAS_PER_SEED = 40
VALUES_PER_SCHEMA = 12
EXAMPLES = examples(60)
ANY_SEED = st.integers(0, 2**32)

NAMES = ("a", "b", "c", "dd")
SCALARS: tuple[Any, ...] = (None, True, False, -1, 0, 1, 2, 3, 5, 0.5, 1.0, -2.5, 10**20, 1e20, 2**53, 2**63, -(2**63))
SCALARS += (2**64, 1e308, 1e-7, "", "a", "ab", "ä", "e\u0301", "😀", "👨‍👩‍👧", "12", "\0", "\n", "a\nb", " ")
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# Patterns with the same meaning in every dialect: `\w` and `\d` differ.
PATTERNS = ("a", "^a", "^[a-c]+$", "[0-9]{2}", "a|d", "[^a]", "ä", "^.$")


class Maker:
    """Generates random schemas and values."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        some = self.chance.choice

        def number(_: int) -> Any:
            return some((-2, -1, 0, 1, 2, 3, 0.5, -1.5, 2.0))

        def size(_: int) -> Any:
            return some((0, 1, 2, 3))

        self.rules: dict[str, Callable[[int], Any]] = {
            "type": lambda _: some((some(TYPES), self.chance.sample(TYPES, 3))),
            "enum": lambda _: [self.value(2) for _ in range(3)],
            "const": lambda _: self.value(2),
            "minimum": number,
            "maximum": number,
            "exclusiveMinimum": number,
            "exclusiveMaximum": number,
            "multipleOf": lambda _: some((1, 2, 0.5, 3)),
            "minLength": size,
            "maxLength": size,
            "pattern": lambda _: some(PATTERNS),
            "minItems": size,
            "maxItems": size,
            "uniqueItems": lambda _: some((True, False)),
            "minProperties": size,
            "maxProperties": size,
            "required": lambda _: self.chance.sample(NAMES, some((1, 2))),
            "dependentRequired": lambda _: {some(NAMES): [some(NAMES)]},
            "properties": self.map,
            "patternProperties": lambda depth: {some(PATTERNS): self.schema(depth)},
            "additionalProperties": self.schema,
            "propertyNames": self.schema,
            "dependentSchemas": self.map,
            "prefixItems": self.list,
            "items": self.schema,
            "contains": self.schema,
            "minContains": size,
            "maxContains": size,
            "unevaluatedProperties": self.schema,
            "unevaluatedItems": self.schema,
            "allOf": self.list,
            "anyOf": self.list,
            "oneOf": self.list,
            "not": self.schema,
            "if": self.schema,
            "then": self.schema,
            "else": self.schema,
            "format": lambda _: some(("email", "date-time", "regex")),
            "contentEncoding": lambda _: "base64",
            "$ref": lambda _: some(("#/$defs/one", "#two")),
        }

    def schema(self, depth: int) -> Any:
        if depth <= 0 or self.chance.random() < 0.15:
            return self.chance.choice((True, True, False, {"type": self.chance.choice(TYPES)}))
        return self.object(depth)

    def object(self, depth: int) -> dict[str, Any]:
        names = self.chance.sample(list(self.rules), self.chance.choice((1, 2, 3, 4)))
        return {name: self.rules[name](depth - 1) for name in names}

    def map(self, depth: int) -> dict[str, Any]:
        return {name: self.schema(depth) for name in self.chance.sample(NAMES, self.chance.choice((1, 2, 3)))}

    def list(self, depth: int) -> Any:
        return [self.schema(depth) for _ in range(self.chance.choice((1, 2, 3)))]

    def value(self, depth: int) -> Any:
        kind = self.chance.random()
        if depth <= 0 or kind < 0.4:
            return self.chance.choice(SCALARS)
        if kind < 0.65:
            return [self.value(depth - 1) for _ in range(self.chance.choice((0, 1, 2, 3)))]
        names = self.chance.sample(NAMES, self.chance.choice((0, 1, 2, 3, 4)))
        return {name: self.value(depth - 1) for name in names}

    def definitions(self) -> dict[str, Any]:
        # A schema that refers to itself at the same location is meaningless, and each library reports that differently.
        references = self.rules.pop("$ref")
        made = {"one": self.object(1), "two": {**self.object(1), "$anchor": "two"}}
        self.rules["$ref"] = references
        return made


class Tried(NamedTuple):
    taken: int
    refused: int


def compare_events(maker: Maker, schema_count: int) -> Tried:
    taken = refused = 0
    for _ in range(schema_count):
        whole = {**maker.object(3), "$defs": maker.definitions()}
        schemas = TopicSchemas.parse([{"eventType": "made", **whole}])
        slow = Draft202012Validator(whole)
        for _ in range(VALUES_PER_SCHEMA):
            value = maker.value(3)
            try:
                schemas.check("made", json.dumps(value).encode())
                is_taken = True
            except SchemaViolation:
                is_taken = False
            assert is_taken == slow.is_valid(value), (whole, value)
            taken, refused = taken + is_taken, refused + (not is_taken)
    return Tried(taken, refused)


def compare_schemas(maker: Maker, schema_count: int) -> Tried:
    taken = refused = 0
    for _ in range(schema_count):
        schema = maker.object(2)
        if maker.chance.random() < 0.7:
            schema[maker.chance.choice(list(schema))] = maker.value(2)
        schema.pop("$ref", None)
        schema.setdefault("$defs", maker.definitions())
        try:
            Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
            is_right = True
        except SchemaError:
            is_right = False
        try:
            compiled(schema)
            is_compiled = True
        except ValueError:
            is_compiled = False
        assert is_compiled == is_right, schema
        taken, refused = taken + is_right, refused + (not is_right)
    return Tried(taken, refused)


@pytest.mark.proves("S2-15", "S2-38")
@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_both_take_and_refuse_the_same_events(seed: int) -> None:
    # It is about both.
    assert min(compare_events(Maker(seed), SCHEMAS_PER_SEED)) > SCHEMAS_PER_SEED


@settings(max_examples=EXAMPLES)
@given(ANY_SEED)
def test_both_take_and_refuse_the_same_events_whatever_they_are(seed: int) -> None:
    compare_events(Maker(seed), 1)


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_both_refuse_the_same_schemas(seed: int) -> None:
    assert min(compare_schemas(Maker(seed), SCHEMAS_PER_SEED)) > SCHEMAS_PER_SEED // 10


@settings(max_examples=EXAMPLES)
@given(ANY_SEED)
def test_both_refuse_the_same_schemas_whatever_they_are(seed: int) -> None:
    compare_schemas(Maker(seed), 1)


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        # Decimal fractions are exact.
        ({"multipleOf": 0.01}, 19.99, 19.995),
        # Classes of characters are those of ECMA-262, which JSON Schema recommends.
        ({"pattern": r"^\w$"}, "a", "ä"),
        ({"pattern": r"^\d$"}, "1", "\u0661"),
        # `$` matches only at the end, not before a final line break.
        ({"pattern": "b$"}, "b", "b\n"),
    ],
)
def test_where_they_differ_events_have_it_as_json_schema_does(schema: Any, taken: Any, refused: Any) -> None:
    schemas = TopicSchemas.parse([{"eventType": "made", **schema}])
    schemas.check("made", json.dumps(taken).encode())
    with pytest.raises(SchemaViolation):
        schemas.check("made", json.dumps(refused).encode())


def test_what_the_one_calls_no_schema_has_words_of_the_other() -> None:
    for schema in ({"minimum": "x"}, {"required": "a"}, {"properties": {"a": {"maxLength": -1}}}, {"enum": 5}):
        with pytest.raises(InvalidSchema) as caught:
            TopicSchemas.parse([{"eventType": "made", **schema}])
        with pytest.raises(SchemaError) as worded:
            Draft202012Validator.check_schema(schema)
        assert caught.value.problem == worded.value.message
