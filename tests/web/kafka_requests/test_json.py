"""Messages as JSON: every message of the listed requests keeps its values, and errors name the field."""

import base64
from collections.abc import Generator
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from kwire.errors import ErrorCode
from kwire.web.answers.errors import BadRequest
from kwire.web.kafka_requests import writing
from kwire.web.kafka_requests.listed import REQUESTS
from kwire.web.kafka_requests.reading import read_request
from kwire.web.kafka_requests.writing import MessageTooLarge, error_name_field, write_message
from kwire.wire.apis import APIS
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsResponse
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.offset_commit import OFFSET_COMMIT
from kwire.wire.schema import Api, ArrayKind, Struct, message_of
from kwire.wire.types import BYTES, FLOAT64, UUID
from tests.support.effort import repetitions
from tests.wire.strategies import drawn

DRAWN = repetitions(quick=5, full=50)
T = TypeVar("T")
TOPIC = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def run(steps: Generator[None, None, T]) -> T:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def read(api: Api, version: int, body: Any) -> Any:
    return run(read_request(api, version, body))


def written(message: Any, version: int) -> Any:
    return msgspec.json.decode(run(write_message(message, version)))


VERSIONS = [(one.api, version) for one in REQUESTS for version in one.api.versions]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda one: one.name if isinstance(one, Api) else str(one))
def test_a_request_keeps_its_values(api: Api, version: int) -> None:
    for message in drawn(api.request, version, DRAWN):
        shown = written(message, version)
        found = read(api, version, shown)
        assert encode_message(found, version) == encode_message(message, version)
        assert written(found, version) == shown


def expected_json(kind: Any, value: Any, version: int) -> Any:
    """What the JSON of a value is, by the declaration alone."""
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [expected_json(kind.element, one, version) for one in value]
    if isinstance(kind, Struct):
        shown: dict[str, Any] = {}
        for field in kind.fields:
            if version in field.versions:
                one = getattr(value, field.name)
                shown[field.name] = expected_json(field.kind, one, version)
                error_name = error_name_field(field.name)
                if error_name is not None and one:
                    shown[error_name] = ErrorCode(one).name
        return shown
    if kind is UUID:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if kind is BYTES:
        return base64.b64encode(value).decode()
    if kind is FLOAT64 and value == float("inf"):
        return "Infinity"
    return value


def with_known_errors(kind: Any, value: Any, chance: Random) -> None:
    """Replace random error codes, of which most do not exist, by codes of Kafka."""
    if isinstance(kind, ArrayKind) and isinstance(kind.element, Struct):
        for one in value or ():
            with_known_errors(kind.element, one, chance)
    elif isinstance(kind, Struct) and value is not None:
        for field in kind.fields:
            if error_name_field(field.name) is not None:
                setattr(value, field.name, int(chance.choice(list(ErrorCode))))
            else:
                with_known_errors(field.kind, getattr(value, field.name), chance)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda one: one.name if isinstance(one, Api) else str(one))
def test_a_response_has_all_values_and_the_names_of_its_errors(api: Api, version: int) -> None:
    kind = message_of(api.response).struct
    for number, message in enumerate(drawn(api.response, version, DRAWN)):
        with_known_errors(kind, message, Random(number))
        read_back = decode_message(api.response, version, encode_message(message, version))
        assert written(read_back, version) == expected_json(kind, read_back, version)


def test_no_message_has_a_field_with_the_name_of_an_error() -> None:
    """`error` beside `error_code` would collide with it."""

    def check(kind: Any) -> None:
        if isinstance(kind, ArrayKind):
            check(kind.element)
        elif isinstance(kind, Struct):
            names = {field.name for field in kind.fields}
            assert not {error_name_field(name) for name in names} & names
            for field in kind.fields:
                check(field.kind)

    for api in APIS.values():
        check(message_of(api.response).struct)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body must be an object, got an array"),
        ({}, "topics is missing: version 7 of CreateTopics requires it"),
        ({"topics": None}, "topics must not be null in version 7 of CreateTopics"),
        ({"topics": {}}, "topics must be an array, got an object"),
        ({"topics": ["t"]}, 'topics[0] must be an object, got "t"'),
        ({"topics": [{**TOPIC, "num_partitions": "x"}]}, 'topics[0].num_partitions must be a 32-bit integer, got "x"'),
        (
            {"topics": [{**TOPIC, "num_partitions": True}]},
            "topics[0].num_partitions must be a 32-bit integer, got true",
        ),
        (
            {"topics": [TOPIC, {**TOPIC, "replication_factor": 40000}]},
            "topics[1].replication_factor must be a 16-bit integer, got 40000",
        ),
        ({"topics": [{**TOPIC, "name": 1}]}, "topics[0].name must be a string, got 1"),
        ({"topics": [{**TOPIC, "name": "n" * 32768}]}, "topics[0].name must have at most 32767 bytes, got 32768"),
        ({"topics": [], "validate_only": 0}, "validate_only must be true or false, got 0"),
        (
            {"topics": [{**TOPIC, "assignments": [{"partition_index": 0, "broker_ids": [1, None]}]}]},
            "topics[0].assignments[0].broker_ids[1] must be a 32-bit integer, got null",
        ),
        (
            {"topics": [{**TOPIC, "num_partition": 1}]},
            'topics[0]: unknown field "num_partition": did you mean "num_partitions"?',
        ),
        (
            {"topics": [], "validateOnly": True},
            'unknown field "validateOnly": did you mean "validate_only"?',
        ),
        (
            {"topics": [], "colour": 1},
            'unknown field "colour": the known fields are topics, timeout_ms, validate_only',
        ),
        (
            {"topics": [], "c" * 200: 1},
            f'unknown field "{"c" * 99}…: the known fields are topics, timeout_ms, validate_only',
        ),
    ],
)
def test_an_error_names_the_field(body: Any, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(CREATE_TOPICS, 7, body)
    assert refused.value.message == message


def test_an_error_says_which_versions_have_a_field() -> None:
    body = {"group_id": "g", "member_id": "", "topics": [{"name": "t", "partitions": []}]}
    with pytest.raises(BadRequest) as refused:
        read(OFFSET_COMMIT, 10, body)
    assert refused.value.message == 'topics[0]: version 10 of OffsetCommit has no field "name"; versions 2 to 9 have it'
    assert read(OFFSET_COMMIT, 9, body).topics[0].name == "t"


@pytest.mark.parametrize("wrong", ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+", "ä" * 22, 1])
def test_an_id_is_22_characters(wrong: object) -> None:
    with pytest.raises(BadRequest, match=r"topics\[0\].topic_id must be an id of 22 characters"):
        read(METADATA, 13, {"topics": [{"name": None, "topic_id": wrong}]})


def test_missing_fields_have_their_defaults() -> None:
    found = read(CREATE_TOPICS, 7, {"topics": []})
    assert (found.timeout_ms, found.validate_only) == (60000, False)


def test_a_number_without_a_fraction_is_an_integer() -> None:
    assert read(CREATE_TOPICS, 7, {"topics": [{**TOPIC, "num_partitions": 3.0}]}).topics[0].num_partitions == 3


def test_a_large_message_is_refused_before_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "JSON_BYTES_MAX", 100_000)
    (message,) = drawn(DescribeGroupsResponse, DESCRIBE_GROUPS.last_version, 1)
    some = drawn(DescribeGroupsResponse, DESCRIBE_GROUPS.last_version, 50)
    message.groups = next(one.groups for one in some if one.groups) * 10_000
    with_known_errors(message_of(DescribeGroupsResponse).struct, message, Random(1))
    with pytest.raises(MessageTooLarge):
        run(write_message(message, DESCRIBE_GROUPS.last_version))


def test_long_messages_are_read_and_written_in_chunks() -> None:
    body = {"topics": [{**TOPIC, "name": f"t-{number}"} for number in range(1_000)]}
    reading = read_request(CREATE_TOPICS, 7, body)
    assert sum(1 for _ in reading) >= 5
    assert sum(1 for _ in write_message(read(CREATE_TOPICS, 7, body), 7)) >= 5
