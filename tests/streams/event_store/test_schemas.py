"""The schemas of a topic: which are valid, which events they accept, and how they may be extended."""

import json
import time
from random import Random
from typing import Any

import pytest

from kwire.errors import IncompatibleSchema, InvalidSchema, SchemaViolation, UndescribedViolation
from kwire.streams.event_store.schemas import rules as schema_rules
from kwire.streams.event_store.schemas.payload_checks import INLINE_WORK_MAX
from kwire.streams.event_store.schemas.registration import validate_schemas
from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

USER_CREATED = {
    "type": "user.created",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}


def schemas_of(**schema: Any) -> TopicSchemas:
    return TopicSchemas.parse([{"eventType": "made", **schema}])


def problem_of(raw: object) -> tuple[str, str]:
    """The path and the problem of an invalid schema."""
    with pytest.raises(InvalidSchema) as caught:
        TopicSchemas.parse(raw)
    return caught.value.path, caught.value.problem


def violation_of(schemas: TopicSchemas, event_type: str, payload: object) -> tuple[str, str]:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    with pytest.raises(SchemaViolation) as caught:
        schemas.check(event_type, raw)
    return caught.value.path, caught.value.problem


def takes(schemas: TopicSchemas, payload: object, event_type: str = "made") -> bool:
    try:
        schemas.check(event_type, json.dumps(payload).encode())
    except SchemaViolation:
        return False
    return True


# --- accepted events


@pytest.mark.proves("S2-14", "S2-15", "S2-38", "C-20")
def test_the_type_routes_an_event_to_its_schema() -> None:
    schemas = TopicSchemas.parse([USER_CREATED, {"type": "user.deleted", "required": ["at"]}])
    assert schemas.types == ["user.created", "user.deleted"]
    assert takes(schemas, {"id": "1", "name": "Alice"}, "user.created")
    assert takes(schemas, {"at": 5}, "user.deleted")
    assert violation_of(schemas, "user.created", {"id": 1, "name": "A"}) == ("$.id", '1 is not of type "string"')
    assert violation_of(schemas, "user.created", {"id": "1"}) == ("$", '"name" is a required property')
    assert not takes(schemas, {"id": "1", "name": "Alice"}, "user.deleted")
    path, problem = violation_of(schemas, "user.renamed", {})
    assert path == "$"
    assert "'user.created', 'user.deleted'" in problem


@pytest.mark.proves("C-20")
def test_beside_event_type_type_is_a_keyword_of_json_schema() -> None:
    schemas = TopicSchemas.parse([{"eventType": "user.created", "type": "object"}])
    assert schemas.types == ["user.created"]
    assert takes(schemas, {}, "user.created")
    assert not takes(schemas, [], "user.created")
    assert problem_of([{"eventType": "user.created", "type": "user.created"}])[0] == "$[0].type"
    # Without `eventType`, `type` names the event type, whatever it means in JSON Schema.
    named = TopicSchemas.parse([{"type": "object"}])
    assert named.types == ["object"]
    assert takes(named, [], "object")


@pytest.mark.proves("S2-15")
@pytest.mark.parametrize(
    "payload", [b"", b"{", b"nul", b"NaN", b'"\xff"', b'"\\ud800"', b"1e999", b"[" * 3000 + b"]" * 3000, b"{} {}"]
)
def test_what_is_no_json_is_refused(payload: bytes) -> None:
    assert violation_of(schemas_of(), "made", payload)[1].startswith("the payload is not JSON")


@pytest.mark.proves("S2-1", "S2-15")
@pytest.mark.parametrize(
    "payload",
    [
        b'{"n":"x","n":1}',
        b'{"n":1,"n":1}',
        b'{ "n" : 1, "\\u006e" : "x" }',
        b'{"a":[{"b":1,"c":2,"b":1.50}]}',
        '{"\\u00e4":1,"ä":1}'.encode(),
        # As long as it would be without it.
        b'{"a":1e5,"b":1,"b":1}',
    ],
)
def test_a_name_that_stands_twice_is_refused_whoever_would_read_which(payload: bytes) -> None:
    schemas = schemas_of(properties={"n": {"type": "integer"}})
    assert violation_of(schemas, "made", payload)[1].endswith("twice")


@pytest.mark.parametrize(
    "payload",
    [b'{"n": 1, "a": {"n": 1}}', b'[{"n":1.0},{"n":1e3}]', b'{"a":"\\u0061","b":"\\/"}', b' "n" ', b'{"n":1,"N":1}'],
)
def test_the_same_json_may_be_written_in_many_ways(payload: bytes) -> None:
    schemas_of().check("made", payload)


def test_large_integers_keep_their_value() -> None:
    schemas = schemas_of(properties={"n": {"type": "integer", "maximum": 10**30}})
    assert takes(schemas, {"n": 10**30})
    assert not takes(schemas, {"n": 10**30 + 1})


def test_formats_are_notes() -> None:
    assert takes(schemas_of(properties={"mail": {"format": "email"}}), {"mail": "nonsense"})


def test_a_refusal_is_short_whatever_was_sent() -> None:
    schemas = schemas_of(properties={"a": {"type": "integer"}}, additionalProperties=False)
    with pytest.raises(SchemaViolation) as caught:
        schemas.check("made", json.dumps({"a": "x" * 100_000}).encode())
    assert len(caught.value.message) <= 1000
    with pytest.raises(SchemaViolation) as caught:
        schemas.check("y" * 5000, b"1")
    assert len(json.dumps(caught.value.details)) <= 1000


def test_schemas_are_told_as_they_were_given_and_are_the_same_when_stored() -> None:
    given = [USER_CREATED, {"eventType": "made", "$defs": {"a": {"type": "null"}}, "items": {"$ref": "#/$defs/a"}}]
    schemas = TopicSchemas.parse(given)
    again = TopicSchemas.stored(json.loads(json.dumps(schemas.value())))
    for one in (schemas, again):
        assert one.as_json() == given
        assert takes(one, [None])
        assert not takes(one, [1])


# --- valid schemas


@pytest.mark.proves("S2-14", "S2-15")
@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        ([], "$", "one or more"),
        ({}, "$", "one or more"),
        (None, "$", "one or more"),
        ([True], "$[0]", "must be an object"),
        ([{}], "$[0]", "must name its event type"),
        ([{"type": None}], "$[0]", "must name its event type"),
        ([{"type": ["object"]}], "$[0].type", "a string of 1 to"),
        ([{"eventType": ""}], "$[0].eventType", "a string of 1 to"),
        ([{"eventType": "x" * 257}], "$[0].eventType", "a string of 1 to"),
        ([{"type": "a"}, {"eventType": "a"}], "$[1]", "two schemas"),
        ([{"type": str(n)} for n in range(101)], "$", "101 schemas"),
        ([{"type": "a", "properties": {"b": {"minimum": "x"}}}], "$[0].properties.b.minimum", "not of type 'number'"),
        ([{"type": "a", "properties": []}], "$[0].properties", "not of type 'object'"),
        ([{"type": "a", "items": [{}]}], "$[0].items", "not of type"),
        ([{"eventType": "a", "type": "text"}], "$[0].type", "not a type of JSON Schema; use one of array"),
        ([{"type": "a", "$schema": "http://json-schema.org/draft-07/schema#"}], "$[0].$schema", "only https"),
        ([{"type": "a", "$schema": 5}], "$[0].$schema", "only https"),
        ([{"type": "a", "description": "x" * 70_000}], "$[0]", "too large"),
        ([{"type": str(n), "description": "x" * 60_000} for n in range(3)], "$[2]", "too large"),
    ],
)
def test_what_cannot_be_the_schemas_of_a_topic_is_told_with_its_place(raw: object, path: str, words: str) -> None:
    found, problem = problem_of(raw)
    assert found == path
    assert words in problem


@pytest.mark.parametrize("name", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1/x", "https://json-schema.org/draft/2020-12/schema", "file:///etc/passwd", "x.json"]
)
def test_references_stay_inside_the_schema(name: str, reference: str) -> None:
    path, problem = problem_of([{"type": "a", "properties": {"b": {name: reference}}}])
    assert path == f"$[0].properties.b.{name}"
    assert "must refer to a part of the same schema" in problem


@pytest.mark.parametrize("reference", ["#/$defs/no", "#no", "#/properties", "#/const/x", "#/$defs/a/const"])
def test_references_lead_to_schemas(reference: str) -> None:
    schema = {"type": "a", "$defs": {"a": {"const": {}}}, "const": {"x": {}}, "items": {"$ref": reference}}
    assert "does not refer to a schema of this document" in problem_of([schema])[1]


@pytest.mark.parametrize(
    "reference", ["#/$defs/a", "#named", "#/$defs/b~1c%20d", "#dynamic", "#/definitions/e", "#/prefixItems/0"]
)
def test_every_kind_of_reference_inside_the_document_is_followed(reference: str) -> None:
    text = {"type": "string"}
    schema = {
        "$id": "https://example.com/made",
        "$defs": {
            "a": text,
            "n": {"$anchor": "named", **text},
            "b/c d": text,
            "d": {"$dynamicAnchor": "dynamic", **text},
        },
        "definitions": {"e": text},
        "prefixItems": [text],
        "items": {"$dynamicRef" if reference == "#dynamic" else "$ref": reference},
    }
    schemas = schemas_of(**schema)
    assert takes(schemas, ["a", "b"])
    assert not takes(schemas, ["a", 1])


def test_words_of_schemas_that_are_only_data_mean_nothing() -> None:
    data = {"$ref": "http://elsewhere", "$id": "x", "pattern": "(?=a)"}
    schemas = schemas_of(properties={"$ref": {"type": "string"}, "pattern": {"const": data}}, examples=[data])
    assert takes(schemas, {"$ref": "x", "pattern": data})


@pytest.mark.parametrize("name", ["$id", "$schema"])
def test_a_schema_inside_is_no_document_of_its_own(name: str) -> None:
    value = "https://json-schema.org/draft/2020-12/schema"
    assert problem_of([{"type": "a", "not": {name: value}}])[0] == f"$[0].not.{name}"


def test_a_schema_may_be_nested_only_so_deep() -> None:
    schema: dict[str, Any] = {}
    for _ in range(schema_rules.DEPTH_MAX):
        schema = {"not": schema}
    assert "nested deeper" in problem_of([{"type": "a", **schema}])[1]
    for _ in range(5000):
        schema = {"not": schema}
    assert "nested" in problem_of([{"type": "a", **schema}])[1]


# --- patterns


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "(?<!a)b", r"(\w{500}){500}", "a" * 501])
def test_patterns_that_cannot_be_matched_in_linear_time_are_refused(pattern: str) -> None:
    assert problem_of([{"type": "a", "properties": {"b": {"pattern": pattern}}}])[0] == "$[0].properties.b.pattern"
    assert problem_of([{"type": "a", "patternProperties": {pattern: {}}}])[0] == "$[0].patternProperties"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*a){20}$", r"^([a-z]+)*\d$"])
def test_patterns_that_make_other_engines_hang_come_to_an_end(pattern: str) -> None:
    schemas = schemas_of(pattern=pattern)
    assert not takes(schemas, "a" * 100_000 + "!")


def test_patterns_know_more_than_ascii() -> None:
    schemas = schemas_of(pattern=r"^\p{Lu}\p{L}+$")
    assert takes(schemas, "Ämter")
    assert not takes(schemas, "ämter")


# --- costs of checking


def test_a_schema_whose_check_would_double_with_each_level_is_refused() -> None:
    twice = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    for schema in (
        {"$ref": "#/$defs/a0", "$defs": {**twice, "a40": {"type": "string"}}},
        {"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]},
        {"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}, "patternProperties": {"a": True}}
        | {"unevaluatedProperties": {"$ref": "#"}},
        {"items": {"$ref": "#"}, "contains": {"$ref": "#"}},
        {"allOf": [{"type": "object"}] * 600},
    ):
        assert "would take too long" in problem_of([{"type": "a", **schema}])[1]


def test_a_schema_may_refer_to_itself_once_at_each_place() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
        "additionalProperties": False,
    }
    schemas = schemas_of(**tree)
    assert schemas.cost_max.subschemas <= 3
    assert takes(schemas, {"left": {"left": {"value": 1}}, "right": {}})
    assert not takes(schemas, {"left": {"left": {"value": "1"}}})
    assert takes(schemas_of(**{"$ref": "#"}), 1)


def test_the_work_is_what_applies_to_each_place_and_to_each_byte() -> None:
    schemas = schemas_of(properties={"a": {"allOf": [{}, {}, {"anyOf": [{}, {}]}]}, "b": {}})
    assert schemas.cost_max == (6, 6, 0)
    # Three locations: the object, and two inside it.
    assert schemas.work("made", b'{"a":1,"b":[]}') == 1 + 4 * 4 * 6
    assert schemas.work("unknown", b"1") == 4
    assert schemas_of(pattern="^a$").work("made", b"1" * 1000) > 10_000


def list_of(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


RANDOM_TEXT = b'"' + bytes(Random(1).choices(b"ab", k=20_000)) + b'"'
DEEP = b'{"a":' * 100 + b"1" + b"}" * 100
CHOICE = {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}}, {"type": "string"}]}
SLOW: dict[str, tuple[dict[str, Any], bytes]] = {
    "values": ({"items": {"not": {"enum": [{"a": n} for n in range(3000)]}}}, list_of(b'{"a":-1}', 100)),
    "names": ({"items": {"dependentRequired": {f"n{n}": ["a"] for n in range(3000)}}}, list_of(b"{}", 2000)),
    "unique": ({"items": {"uniqueItems": True}}, list_of(b"[1,2,3,4,5,6,7,8,9,10,11,12,13,14]", 1000)),
    "fractions": ({"items": {"multipleOf": 1e-300}}, list_of(b"1.5e300", 500)),
    "states": ({"pattern": "[ab]*a[ab]{400}c"}, RANDOM_TEXT),
    "words": ({"pattern": r"(?:\b.+\b ?){60}z"}, '"{}"'.format("ä b " * 1000).encode()),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_takes_long_is_known_to_take_long(name: str) -> None:
    """Each of them blocked the loop for up to seconds before its work was estimated correctly."""
    schema, payload = SLOW[name]
    schemas = schemas_of(**schema)
    assert schemas.work("made", payload) > INLINE_WORK_MAX
    # The schema is slow, not the payload.
    assert schemas_of().work("made", payload) < INLINE_WORK_MAX


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_what_takes_long_to_say_is_not_said_on_the_loop(word: str) -> None:
    schemas = schemas_of(**{word: CHOICE["anyOf"]})
    with pytest.raises(UndescribedViolation):
        schemas.check_inline("made", DEEP, INLINE_WORK_MAX)
    # In the worker it is described.
    assert "is not valid under" in violation_of(schemas, "made", DEEP)[1]
    with pytest.raises(SchemaViolation, match="is not valid under"):
        schemas.check_inline("made", b'{"a":{"a":1}}', INLINE_WORK_MAX)


@pytest.mark.parametrize("depth", [254, 255, 256, 300, 500])
def test_a_payload_that_is_nested_very_deep_is_refused_in_few_words(depth: int) -> None:
    schemas = schemas_of(**CHOICE)
    assert takes(schemas, json.loads(b'{"a":' * depth + b'"x"' + b"}" * depth))
    assert violation_of(schemas, "made", b'{"a":' * depth + b"1" + b"}" * depth)[0] == "$"


def test_what_would_take_too_much_memory_to_say_is_not_said() -> None:
    payload = b'{"a":' * 200 + b'{"a":"%s","b":1}' % (b"x" * 500_000) + b"}" * 200
    schema = {"anyOf": [{"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}}]}
    with pytest.raises(UndescribedViolation):
        schemas_of(**schema).check("made", payload)


def test_all_patterns_of_a_topic_have_one_bound() -> None:
    large = "[^a]{100}"
    assert takes(schemas_of(pattern=large), "b" * 100)
    raw = [{"type": str(n), "properties": {"a": {"pattern": large + str(n)}}} for n in range(10)]
    path, problem = problem_of(raw)
    assert (path, "compiled patterns of a topic" in problem) == ("$[4].properties.a.pattern", True)


# --- evolution


BASE: dict[str, Any] = {
    "eventType": "made",
    "type": "object",
    "properties": {"a": {"type": "string"}, "list": {"items": {"properties": {"x": {"type": "integer"}}}}},
    "required": ["a"],
}


def evolved(old: list[Any], new: list[Any]) -> TopicSchemas:
    """The schemas of a topic with the old ones after it was given the new ones."""
    judged = validate_schemas(json.dumps(new).encode(), json.dumps(old).encode())
    if judged.refusal is not None:
        raise judged.refusal.error()
    return TopicSchemas.validated(new, judged.costs)


def grown(**more: Any) -> dict[str, Any]:
    return {**BASE, **more}


@pytest.mark.parametrize(
    "new",
    [
        [BASE],
        [BASE, {"type": "other"}],
        [{"type": "other"}, BASE],
        [grown(properties={**BASE["properties"], "b": {"type": "integer"}})],
        [
            grown(
                properties={
                    "a": BASE["properties"]["a"],
                    "list": {"items": {"properties": {"x": {"type": "integer"}, "y": {}}}},
                }
            )
        ],
        [grown(**{"$defs": {"a": {}}, "title": "A", "description": "b", "examples": [1], "$comment": "c"})],
    ],
)
def test_schemas_grow_by_types_and_by_optional_properties(new: list[Any]) -> None:
    schemas = evolved([BASE], new)
    assert schemas.as_json() == new
    assert takes(schemas, {"a": "x", "list": [{"x": 1}]})


@pytest.mark.parametrize(
    ("new", "path"),
    [
        ([{"type": "other"}], "$"),
        ([grown(required=["a", "b"], properties={**BASE["properties"], "b": {}})], "$.properties.b"),
        ([grown(required=["a", "list"])], "$.required"),
        ([grown(required=[])], "$.required"),
        ([grown(properties={"a": {"type": "string"}})], "$.properties.list"),
        ([grown(properties={**BASE["properties"], "a": {"type": "integer"}})], "$.properties.a.type"),
        (
            [grown(properties={**BASE["properties"], "a": {"type": "string", "minLength": 1}})],
            "$.properties.a.minLength",
        ),
        ([grown(properties={**BASE["properties"], "a": True})], "$.properties.a"),
        ([grown(additionalProperties=False)], "$.additionalProperties"),
        ([grown(type="array")], "$.type"),
        ([{key: value for key, value in BASE.items() if key != "type"}], "$.type"),
        ([grown(properties={**BASE["properties"], "list": {"items": False}})], "$.properties.list.items"),
    ],
)
def test_schemas_never_shrink_or_change(new: list[Any], path: str) -> None:
    with pytest.raises(IncompatibleSchema) as caught:
        evolved([BASE], new)
    assert caught.value.details["path"] == path
    assert caught.value.details["type"] == "made"


def test_one_and_true_are_not_the_same_rule() -> None:
    with pytest.raises(IncompatibleSchema):
        evolved([{"type": "made", "const": 1}], [{"type": "made", "const": True}])


def test_schemas_that_grow_still_have_to_be_schemas() -> None:
    with pytest.raises(InvalidSchema):
        evolved([BASE], [BASE, {"type": "other", "minimum": "x"}])


def test_added_schemas_take_the_place_of_their_predecessors() -> None:
    schemas = TopicSchemas.parse([BASE, {"type": "other"}])
    newer = grown(title="newer")
    assert schemas.with_added([{"type": "third"}, newer]) == [newer, {"type": "other"}, {"type": "third"}]


def test_a_repeated_name_among_many_is_found_in_time() -> None:
    names = [f"name{number}" for number in range(20_000)]
    payload = json.dumps(dict.fromkeys(names, 1))[:-1] + f', "{names[-1]}": 2}}'
    begun = time.process_time()
    assert names[-1] in violation_of(schemas_of(), "made", payload.encode())[1]
    # Comparing each name with all earlier ones takes seconds.
    assert time.process_time() - begun < 0.5
