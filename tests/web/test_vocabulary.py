"""Errors about unknown fields say what this API calls them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kwire.web.answers.errors import BadRequest
from kwire.web.requests.bodies import decoded
from kwire.web.rooms.commands import decode_command
from kwire.web.route import AnyOf
from kwire.web.routes import ROUTES
from kwire.web.vocabulary.names import API_BY_MODULE, CONCEPTS
from kwire.web.vocabulary.unknown_fields import LISTED_FIELDS_MAX, own_name
from tests.support.http import http_node
from tests.support.node import in_loop


def structs_in(shape: Any) -> Iterator[msgspec.inspect.StructType]:
    if isinstance(shape, AnyOf):
        for one in shape.shapes:
            yield from structs_in(one)
    elif shape is not None:
        yield from _structs(msgspec.inspect.type_info(shape))


def _structs(info: Any) -> Iterator[msgspec.inspect.StructType]:
    if isinstance(info, msgspec.inspect.StructType):
        yield info
        for field in info.fields:
            yield from _structs(field.type)
    for inner in ("type", "item_type", "value_type"):
        if isinstance(found := getattr(info, inner, None), msgspec.inspect.Type):
            yield from _structs(found)
    for one in getattr(info, "types", ()):
        yield from _structs(one)


def fields_by_api() -> dict[str, set[str]]:
    """The fields of all requests that the server takes, by the names of the APIs."""
    found: dict[str, set[str]] = {api: set() for api in API_BY_MODULE.values()}
    for route in ROUTES:
        for shape in (route.request, *route.more_requests.values(), route.query):
            for struct in structs_in(shape):
                for module, api in API_BY_MODULE.items():
                    if struct.cls.__module__.startswith(module):
                        found[api] |= {field.encode_name for field in struct.fields}
    return found


def test_every_name_in_the_table_is_a_name_of_its_api() -> None:
    known = fields_by_api()
    for concept in CONCEPTS:
        for api, names in concept.names.items():
            assert set(names) <= known[api], (concept.meaning, api)


def test_other_names_are_names_of_no_api_that_has_the_concept() -> None:
    known = fields_by_api()
    for concept in CONCEPTS:
        for api, names in concept.names.items():
            for other in concept.other_names:
                assert other in names or other not in known[api] or other in ("events", "event_types"), (other, api)


def test_no_hint_ever_points_to_a_field_that_the_object_lacks() -> None:
    every_name = {name for concept in CONCEPTS for name in concept.all_names}
    count = 0
    for route in ROUTES:
        for shape in (route.request, *route.more_requests.values(), route.query):
            for struct in structs_in(shape):
                fields = [field.encode_name for field in struct.fields]
                for name in every_name - set(fields):
                    hint = own_name(name, struct.cls, fields)
                    assert hint is None or hint in fields
                    count += hint is not None
    assert count > 100


HINTS = [
    ("POST", "/rooms/r/events", {"type": "x", "data": 1}, "unknown field 'type': this API calls it 'event_type'"),
    ("POST", "/rooms/r/events", {"payload": 1}, "unknown field 'payload': this API calls it 'data'"),
    ("POST", "/rooms/r/events", [{"event_type": "x", "value": 1}], "'value' in $[0]: this API calls it 'data'"),
    ("POST", "/rooms/r/events", {"eventType": "x"}, "unknown field 'eventType': this API calls it 'event_type'"),
    ("POST", "/rooms/r/events", {"headers": {}}, "unknown field 'headers': this API calls it 'metadata'"),
    ("POST", "/events", {"topic": "t", "event_type": "x"}, "unknown field 'event_type': this API calls it 'type'"),
    ("POST", "/events", [{"topic": "t", "type": "x", "data": 1}], "'data' in $[0]: this API calls it 'payload'"),
    ("POST", "/events", {"room": "t"}, "unknown field 'room': this API calls it 'topic'"),
    ("POST", "/events", {"expected_version": 1}, "this API calls it 'expectedVersion'"),
    ("POST", "/topics/t/publish", {"type": "x"}, "unknown field 'type': this API calls it 'event_type'"),
    ("POST", "/topics/t", {"partitions": 3}, "unknown field 'partitions': this API calls it 'num_partitions'"),
    ("POST", "/consumer-groups/g", {"num_partitions": 3}, "this API calls it 'partition_count'"),
    ("POST", "/webhooks", {"callback": "http://x"}, "unknown field 'callback': this API calls it 'url'"),
    ("POST", "/consumers/register", {"url": "http://x"}, "unknown field 'url': this API calls it 'callback'"),
    (
        "POST",
        "/topics/t/partitions/0/consume",
        {"offset": 3},
        "unknown field 'offset': this API calls it 'from_offset'",
    ),
    ("POST", "/api/v1/command", {"command": "stream.publish", "payload": {"type": 1}}, "it 'event_type'"),
    ("GET", "/rooms/r/events?offset=1", None, "query: unknown field 'offset': this API calls it 'from_offset'"),
    ("GET", "/rooms/r/events?nonsense=1", None, "'nonsense': the known fields are from_offset, to_offset, limit"),
    (
        "PUT",
        "/rooms/r",
        {"x": 1},
        "unknown field 'x': the known fields are retention_mode, retention_hours, max_events",
    ),
]


@in_loop
async def test_the_error_says_what_this_api_calls_it(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.post("/topics/t", {"num_partitions": 1})
        for method, path, body, expected in HINTS:
            answer = await http.ask(method, path, body)
            assert answer.status == 400, (path, body, answer.body)
            assert expected in answer.json["error"]["message"], (path, answer.body)
        records = b'{"records":[{"payload":1}]}'
        produced = await http.post("/topics/t", records, Content_Type="application/vnd.kafka.json.v2+json")
        assert produced.status == 422
        assert produced.json["message"] == "unknown field 'payload' in $.records[0]: this API calls it 'value'"


def test_a_command_is_an_envelope_whose_payload_is_not_the_data_of_an_event() -> None:
    with pytest.raises(BadRequest) as refused:
        decode_command(b'{"command":"stream.publish","data":{}}')
    assert refused.value.message == "unknown field 'data': the known fields are payload, request_id"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    known: int = 0


class Outer(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    by_name: dict[str, Inner] = {}
    in_list: list[Inner | None] = []


class Many(msgspec.Struct, forbid_unknown_fields=True):
    pass


Large = msgspec.defstruct(
    "Large", [(f"f{n}", int, 0) for n in range(LISTED_FIELDS_MAX + 1)], forbid_unknown_fields=True
)


@pytest.mark.parametrize(
    ("raw", "shape", "expected"),
    [
        (b'{"byName":{"a":{"KNOWN":1}}}', Outer, "unknown field 'KNOWN' in $.byName[...]: this API calls it 'known'"),
        (b'{"inList":[null,{"x":1}]}', Outer, "unknown field 'x' in $.inList[1]: the known fields are known"),
        (b'{"by_name":{}}', Outer, "unknown field 'by_name': this API calls it 'byName'"),
        (b'{"x":1}', Many, "unknown field 'x'"),
        (b'{"x":1}', Large, "unknown field 'x'"),
        (b'{"`x` - at `$.y`":1}', Inner, "unknown field '`x` - at `$.y`': the known fields are known"),
        (b'{"known":"1"}', Inner, "expected `int`, got `str` - at `$.known`"),
    ],
)
def test_the_object_is_found_wherever_it_is(raw: bytes, shape: Any, expected: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decoded(raw, shape)
    assert refused.value.message == expected


def test_a_long_name_is_shortened() -> None:
    with pytest.raises(BadRequest) as refused:
        decoded(b'{"' + b"x" * 500 + b'":1}', Inner)
    assert len(refused.value.message) < 200
