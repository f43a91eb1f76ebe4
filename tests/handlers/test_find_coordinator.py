"""FindCoordinator: this node, for every group and every transactional id."""

from collections.abc import Awaitable

import pytest

from kwire.errors import ErrorCode
from kwire.handlers.find_coordinator import handle
from kwire.handlers.shared.context import Context
from kwire.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.coordinator.context import FakeTopics, call, context_of
from tests.coordinator.world import World


def find(version: int, request: FindCoordinatorRequest, topics: FakeTopics | None = None) -> FindCoordinatorResponse:
    def ask(
        context: Context, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
        return handle(context, request)

    return call(ask, context_of(World(), version, topics), request)


@pytest.mark.parametrize("version", range(4))
def test_this_node_coordinates_every_group(version: int) -> None:
    topics = FakeTopics()
    response = find(version, FindCoordinatorRequest(key="g"), topics)
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 7, "broker", 9092)
    assert topics.created == ["__consumer_offsets"]


@pytest.mark.parametrize("version", range(1, 7))
def test_this_node_coordinates_every_transactional_id(version: int) -> None:
    topics = FakeTopics()
    request = FindCoordinatorRequest(key="tx", key_type=1, coordinator_keys=["tx"])
    response = find(version, request, topics)
    one = response if version < 4 else response.coordinators[0]
    assert (one.error_code, one.node_id, one.host, one.port) == (0, 7, "broker", 9092)
    assert topics.created == ["__transaction_state"]


@pytest.mark.parametrize("version", range(1, 7))
def test_the_message_without_an_error_is_that_of_kafka(version: int) -> None:
    response = find(version, FindCoordinatorRequest(key="g", coordinator_keys=["g"]))
    assert (response.error_message if version < 4 else response.coordinators[0].error_message) == (
        "NONE" if version < 4 else ""
    )


@pytest.mark.parametrize("version", range(4, 7))
def test_several_keys_are_answered_one_by_one(version: int) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    response = find(version, request)
    assert [(one.key, one.node_id, one.port, one.error_code) for one in response.coordinators] == [
        ("a", 7, 9092, 0),
        ("b", 7, 9092, 0),
    ]


@pytest.mark.parametrize(
    ("key_type", "error"),
    [(2, ErrorCode.UNSUPPORTED_VERSION), (3, ErrorCode.INVALID_REQUEST)],
)
def test_other_kinds_of_key_are_refused(key_type: int, error: ErrorCode) -> None:
    topics = FakeTopics()
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    (one,) = find(6, request, topics).coordinators
    assert (one.error_code, one.node_id, one.port) == (error, -1, -1)
    assert topics.created == []


@pytest.mark.parametrize("version", range(1, 6))
def test_share_groups_are_no_kind_of_key_before_version_6(version: int) -> None:
    request = FindCoordinatorRequest(key="g", key_type=2, coordinator_keys=["g"])
    response = find(version, request)
    codes = [response.error_code] if version < 4 else [one.error_code for one in response.coordinators]
    assert codes == [ErrorCode.INVALID_REQUEST]
