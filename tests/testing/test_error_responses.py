"""Error responses that test servers make from any request: they can be encoded, and repeat what the request names."""

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.testing.error_responses import can_fail, error_response
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from kwire.wire.messages.offset_commit import OFFSET_COMMIT
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.schema import Api
from tests.wire.cases import checking
from tests.wire.strategies import drawn

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
EXAMPLES = 4
# Responses without an error code, which clients cannot be told of otherwise: none are served today.
WITHOUT_ERRORS: set[str] = set()


@pytest.mark.parametrize("api", [handler.api for handler in HANDLERS.values()], ids=lambda api: api.name)
def test_every_response_can_be_encoded_and_has_the_error(api: Api) -> None:
    assert can_fail(api.response) == (api.name not in WITHOUT_ERRORS)
    for version in api.versions:
        with checking(api.request, version):
            for request in drawn(api.request, version, EXAMPLES):
                response = error_response(api.response, version, request, CODE)
                if response is not None:
                    encoded = encode_message(response, version)
                    assert CODE in codes_of(decode_message(api.response, version, encoded))


def codes_of(message: Any) -> set[int]:
    found = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            for one in value:
                if hasattr(one, "__slots__"):
                    found |= codes_of(one)
    return found


@pytest.mark.parametrize("api", [PRODUCE, FETCH, OFFSET_COMMIT], ids=lambda api: api.name)
def test_every_partition_of_the_request_fails(api: Api) -> None:
    for version in api.versions:
        for request in drawn(api.request, version, EXAMPLES):
            response = error_response(api.response, version, request, CODE, at_top=False)
            expected = [topic for topic in partitions_of(request) if topic[2]]
            assert [topic for topic in partitions_of(response) if topic[2]] == expected


def partitions_of(message: Any) -> list[tuple[object, object, list[int]]]:
    """Of a request or a response with topics: their names, ids and partitions."""
    if message is None:
        return []

    def field_of(value: Any, *names: str) -> Any:
        return next(getattr(value, name) for name in names if hasattr(value, name))

    return [
        (
            field_of(topic, "name", "topic"),
            topic.topic_id,
            [
                field_of(one, "index", "partition_index", "partition")
                for one in field_of(topic, "partition_responses", "partition_data", "partitions")
            ],
        )
        for topic in field_of(message, "responses", "topic_data", "topics")
    ]


def test_plain_names_of_a_request_become_elements() -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    response = error_response(FIND_COORDINATOR.response, 4, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert response is not None
    found = [(one.key, one.error_code) for one in response.coordinators]
    assert found == [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert response.error_code == 0
