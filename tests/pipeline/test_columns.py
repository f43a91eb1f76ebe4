"""JSON Schemas as columns: what types they get, what is refused, and how a table grows."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.access.scope import ID_LENGTH, Scope
from kwire.pipeline.columns import (
    METADATA_COLUMNS,
    METADATA_NAMES,
    Array,
    Column,
    ColumnClash,
    Struct,
    TableNameClash,
    TooManyFields,
    additions,
    columns_of,
    ddl,
    has_open_payload,
    merged,
    payload_columns,
    table_columns,
    table_name,
    table_names,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"eventType": "e", "type": "object", "properties": properties}


def types(*schemas: dict[str, Any]) -> dict[str, str]:
    return {column.name: ddl(column.type) for column in payload_columns(schemas)}


def type_of(described: Any, **more: Any) -> str:
    return types({**schema(x=described), **more})["x"]


def test_columns_stand_in_the_order_of_the_schemas_with_the_metadata_behind() -> None:
    first = schema(b={"type": "string"}, a={"type": "integer"})
    second = {**schema(c={"type": "boolean"}, a={"type": "integer"}), "eventType": "f"}
    columns = table_columns([first, second])
    assert [column.name for column in columns] == ["b", "a", "c", *METADATA_NAMES]
    assert METADATA_NAMES == (
        "event_id",
        "event_type",
        "kafka_partition",
        "kafka_offset",
        "kafka_timestamp",
        "kafka_key",
        "kafka_headers",
    )


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date-time"}, "string"),
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": "null"}, "string"),
        (True, "string"),
        ({}, "string"),
        ({"const": 7}, "bigint"),
        ({"const": True}, "boolean"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2.5]}, "double"),
        ({"enum": [{"a": 1}]}, "string"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "string"),
        ({"type": "object", "properties": {"y": {"type": "integer"}}}, "struct<`y`:bigint>"),
        ({"properties": {"y": {"type": "integer"}}, "required": ["z"]}, "struct<`y`:bigint,`z`:string>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array", "items": {}}, "string"),
        ({"items": {"properties": {"y": {"type": "number"}}}}, "array<struct<`y`:double>>"),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, "string"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "bigint"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"oneOf": [{"type": "integer"}, {}]}, "string"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "bigint"),
        (
            {"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {}}}]},
            "struct<`a`:bigint,`b`:string>",
        ),
        (
            {"properties": {"a": {}}, "if": {}, "then": {"properties": {"b": {"type": "boolean"}}}},
            "struct<`a`:string,`b`:boolean>",
        ),
        # What a schema says of a field is not undone by another that only requires or restricts it.
        (
            {"properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "struct<`a`:bigint,`b`:string>",
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}}}]},
            "struct<`a`:bigint>",
        ),
        ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {}]}, "struct<`a`:string,`b`:string>"),
        # What counts under a condition does not count for all.
        (
            {
                "properties": {"a": {}, "b": {"type": "integer"}},
                "then": {"properties": {"a": {"type": "integer"}, "b": {"minimum": 3}}},
                "else": {"properties": {"a": {"type": "string"}}},
            },
            "struct<`a`:string,`b`:bigint>",
        ),
        ({"then": {"properties": {"a": {"type": "integer"}}}}, "struct<`a`:bigint>"),
        ({"type": "number", "allOf": [{"type": "integer"}]}, "bigint"),
        ({"type": "array", "allOf": [{"items": {"type": "integer"}}]}, "array<bigint>"),
        # Fields of an object say nothing of a text.
        ({"type": "string", "allOf": [{"properties": {"a": {}}}]}, "string"),
    ],
)
def test_a_schema_has_the_type_of_its_values(described: Any, expected: str) -> None:
    assert type_of(described) == expected


def test_references_are_followed_and_a_type_inside_itself_is_text() -> None:
    definitions = {
        "name": {"$anchor": "called", "type": "string"},
        "count": {"type": "integer"},
        "tree": {"properties": {"label": {"type": "string"}, "below": {"$ref": "#/$defs/tree"}}},
    }
    found = {
        **schema(a={"$ref": "#/$defs/count"}, b={"$ref": "#called"}, c={"$ref": "#/$defs/tree"}),
        "$defs": definitions,
    }
    assert types(found) == {"a": "bigint", "b": "string", "c": "struct<`label`:string,`below`:string>"}


def test_a_schema_that_fans_out_is_refused() -> None:
    definitions = {
        f"level{level}": {"properties": {name: {"$ref": f"#/$defs/level{level + 1}"} for name in ("a", "b", "c")}}
        for level in range(30)
    }
    with pytest.raises(TooManyFields, match="more than 20,000 fields"):
        types({**schema(x={"$ref": "#/$defs/level0"}), "$defs": definitions})


def test_a_field_of_two_event_types_has_the_type_that_holds_both() -> None:
    one = schema(x={"type": "integer"}, y={"type": "integer"}, z={"properties": {"a": {"type": "integer"}}})
    two = schema(x={"type": "number"}, y={"type": "boolean"}, z={"properties": {"b": {"type": "integer"}}})
    assert types(one, two) == {"x": "double", "y": "string", "z": "struct<`a`:bigint,`b`:bigint>"}


def test_without_event_type_the_word_type_is_no_keyword() -> None:
    assert types({"type": "user.created", "properties": {"id": {"type": "string"}}}) == {"id": "string"}


def test_fields_that_are_only_required_are_columns_too() -> None:
    assert types({"eventType": "e", "required": ["id", "name"]}) == {"id": "string", "name": "string"}


@pytest.mark.parametrize(
    "schemas",
    [
        [],
        [{"eventType": "e"}],
        [{"eventType": "e", "type": "string"}],
        [{"eventType": "e", "type": "array", "items": {}}],
        [schema(a={}), {"eventType": "e"}],
    ],
)
def test_a_payload_without_named_fields_is_text(schemas: list[dict[str, Any]]) -> None:
    assert has_open_payload(schemas)
    assert payload_columns(schemas)[-1] == Column("value", "string")


@pytest.mark.parametrize(
    ("schemas", "reason"),
    [
        *(([schema(**{name: {}})], name) for name in METADATA_NAMES),
        ([schema(Event_ID={})], "Event_ID"),
        ([schema(a={}, A={})], "a and A"),
        ([schema(x={"properties": {"b": {}, "B": {}}})], "the field x"),
        ([schema(**{"": {}})], "without a name"),
        ([schema(value={}), {"eventType": "open"}], "value"),
    ],
)
def test_names_that_clash_are_refused(schemas: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ColumnClash, match=reason):
        payload_columns(schemas)


def test_tables_are_named_after_topics() -> None:
    assert table_name("user-events.v2") == "user_events_v2"
    assert table_name("naïve topic") == "na_ve_topic"
    assert table_names(["a", "b", "a"]) == {"a": "a", "b": "b"}
    with pytest.raises(TableNameClash, match=r"a-b and a\.b would share the table kwire.a_b"):
        table_names(["a-b", "c", "a.b"])
    with pytest.raises(TableNameClash, match="a_dead_letters"):
        table_names(["a.dead.letters", "a"])
    assert len(table_names(["a.dead.letters", "a"], with_dead_letters=False)) == 2


def test_tables_of_tenants_are_named_after_full_names() -> None:
    scopes = [Scope(one, one * ID_LENGTH) for one in "abz9"]
    topics = [*(one.full_name(plain) for one in scopes for plain in ("orders", "a-b", "kws-x", "9")), "orders", "a-b"]
    tables = table_names(topics)
    assert tables[scopes[0].full_name("orders")] == "kws_aaaaaaaaaaa_orders"
    assert len(set(tables.values())) == len(topics)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", one) for one in tables.values())
    # A name without a scope that would share a table is refused, not mixed with the tenant's events.
    with pytest.raises(TableNameClash):
        table_names([scopes[0].full_name("orders"), "kws_aaaaaaaaaaa_orders"])


def test_a_table_gains_columns_in_their_places() -> None:
    there = table_columns([schema(a={"type": "integer"}, s={"properties": {"x": {"type": "integer"}}})])
    wanted = table_columns(
        [
            schema(
                new={"type": "string"},
                a={"type": "integer"},
                s={"properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
                last={"type": "boolean"},
            )
        ]
    )
    assert [(one.path, ddl(one.type), one.after) for one in additions(there, wanted)] == [
        (("new",), "string", None),
        (("s", "y"), "string", "x"),
        (("last",), "boolean", "s"),
    ]
    assert merged(there, wanted) == wanted


def test_what_is_inside_an_array_grows_too() -> None:
    there = [Column("a", Array(Struct((Column("x", "bigint"),))))]
    wanted = [Column("a", Array(Struct((Column("x", "bigint"), Column("y", "string")))))]
    assert [one.path for one in additions(there, wanted)] == [("a", "element", "y")]
    assert merged(there, wanted) == tuple(wanted)


def test_a_wider_column_stays_and_a_narrower_one_is_refused() -> None:
    assert additions([Column("a", "string")], [Column("a", "bigint")]) == []
    assert additions([Column("a", "double")], [Column("a", "bigint")]) == []
    for old, new in (("bigint", "double"), ("bigint", "string"), ("boolean", "bigint")):
        with pytest.raises(ColumnClash, match="cannot change its type"):
            additions([Column("a", old)], [Column("a", new)])
    with pytest.raises(ColumnClash, match="differs from A only in case"):
        additions([Column("a", "string")], [Column("A", "string")])


NAMES = st.sampled_from(["a", "b", "c", "d e", "f.g", "`"])
TYPES = st.recursive(
    st.sampled_from(["bigint", "double", "string", "boolean"]),
    lambda inner: st.one_of(
        st.builds(Array, inner),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: Struct(tuple(Column(name, one) for name, one in fields.items()))
        ),
    ),
    max_leaves=6,
)
TABLES = st.dictionaries(NAMES, TYPES, max_size=4).map(lambda found: [Column(name, one) for name, one in found.items()])


@given(there=TABLES, wanted=TABLES)
def test_a_merged_table_has_all_it_had_and_lacks_nothing(there: list[Column], wanted: list[Column]) -> None:
    try:
        result = merged(there, wanted)
    except ColumnClash:
        return
    assert additions(result, wanted) == []
    # Nothing that was there is lost or moved past another.
    names = [column.name for column in result]
    assert [name for name in names if name in {column.name for column in there}] == [column.name for column in there]
    assert set(names) == {column.name for column in (*there, *wanted)}


def spark_json(column_type: Any) -> Any:
    """A type as Spark describes it."""
    if isinstance(column_type, Struct):
        return {"type": "struct", "fields": [spark_field(column) for column in column_type.fields]}
    if isinstance(column_type, Array):
        return {"type": "array", "elementType": spark_json(column_type.element), "containsNull": True}
    return {"bigint": "long", "int": "integer"}.get(column_type, column_type)


def spark_field(column: Column) -> dict[str, Any]:
    return {"name": column.name, "type": spark_json(column.type), "nullable": True, "metadata": {}}


@given(TABLES)
def test_columns_are_read_back_from_what_spark_says(columns: list[Column]) -> None:
    told = {"type": "struct", "fields": [spark_field(column) for column in (*columns, *METADATA_COLUMNS)]}
    assert columns_of(told) == (*columns, *METADATA_COLUMNS)
