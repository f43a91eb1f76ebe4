"""The rights that requests about topics, records, configs and the cluster need, and the answers without them."""

import asyncio
from typing import Any

import pytest

from kwire.access.access import Unrestricted
from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.wire.codec import encode_message
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.types import ZERO_UUID
from tests.support.access import ALICE, BOB, CLUSTER_OPERATIONS, TOPIC_OPERATIONS, RecordingAccess
from tests.support.access_cases import (
    CASES,
    CLUSTER_REFUSED,
    STATES,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID_REFUSED,
    AccessCase,
    Subject,
    set_rights,
    subject_of,
)
from tests.support.node import QuietNode, in_loop

# The APIs of this page. Those of groups, offsets and transactions have their own.
KEYS = {0, 1, 2, 3, 19, 20, 21, 23, 27, 32, 33, 34, 35, 37, 43, 44, 45, 46, 55, 57, 60, 61, 64, 74, 75}

# In these versions of Produce and Fetch, topics have no names.
FIRST_VERSIONS_BY_ID = {0: 13, 1: 13}

NOT_ASKED = -(2**31)
UNKNOWN_ID = bytes(range(16))


def request_bytes(case: AccessCase, name: str) -> bytes:
    return encode_message(case.request(Subject(name)), case.version)


BY_ID = [
    case for case in CASES if not case.given and case.request(Subject("")) != case.request(Subject("", UNKNOWN_ID))
]
BY_ID = [case for case in BY_ID if case.version >= FIRST_VERSIONS_BY_ID.get(case.key, 0)]
BY_NAME = [case for case in CASES if not case.given and case not in BY_ID and b"NAME" in request_bytes(case, "NAME")]

by_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def cases_of(key: int) -> list[AccessCase]:
    return [case for case in CASES if case.key == key]


def test_every_api_of_this_page_has_a_case() -> None:
    assert {case.key for case in CASES} == KEYS


@by_case
@in_loop
async def test_a_request_needs_its_right(node: QuietNode, case: AccessCase) -> None:
    node.restrict()
    for state, is_accepted in STATES.items():
        subject = await subject_of(node, case, f"orders-{state}")
        await set_rights(node, case, state, subject.name)
        response = await node.ask(case.request(subject), case.version)
        code = ErrorCode(case.code(response))
        assert code is (case.accepted if is_accepted else case.refusal), state


@by_case
@in_loop
async def test_without_an_authorizer_nothing_is_refused(node: QuietNode, case: AccessCase) -> None:
    subject = await subject_of(node, case, "orders")
    response = await node.ask(case.request(subject), case.version)
    assert case.code(response) == case.accepted


@pytest.mark.parametrize("case", BY_NAME, ids=[case.name for case in BY_NAME])
@in_loop
async def test_a_refusal_does_not_reveal_whether_a_topic_exists(node: QuietNode, case: AccessCase) -> None:
    node.restrict()
    await node.create("orders-here")
    answers = []
    for name in ("orders-here", "orders-away"):
        response = await node.ask(case.request(Subject(name)), case.version)
        answers.append(encode_message(response, case.version).replace(name.encode(), b"NAME"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("case", BY_ID, ids=[case.name for case in BY_ID])
@in_loop
async def test_a_refusal_does_not_reveal_the_name_of_an_id(node: QuietNode, case: AccessCase) -> None:
    # Ids themselves are not confidential in Kafka: those that do not exist have another error.
    node.restrict()
    topic = await node.create("orders")
    response = await node.ask(case.request(Subject("", topic.topic_id)), case.version)
    assert case.code(response) == case.refusal
    assert b"orders" not in encode_message(response, case.version)
    response = await node.ask(case.request(Subject("", UNKNOWN_ID)), case.version)
    assert case.code(response) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("key", sorted(KEYS))
@in_loop
async def test_handlers_ask_for_exactly_the_rights_they_declare(node: QuietNode, key: int) -> None:
    node.restrict()
    asked: set[Any] = set()
    for number, case in enumerate(cases_of(key)):
        for state in ("none", "right"):
            subject = await subject_of(node, case, f"orders-{number}-{state}")
            await set_rights(node, case, state, subject.name)
            access = RecordingAccess(node.services.authorizer.access(ALICE, "192.0.2.7"))
            node.set_access(access)
            await node.ask(case.request(subject), case.version)
            assert access.needs, "the handler asks for no right"
            assert access.names <= {subject.name, CLUSTER_NAME}
            asked |= access.needs
    assert asked == set(HANDLERS[key].needs)


@in_loop
async def test_an_unrestricted_access_is_never_asked(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*asked: object) -> bool:
        raise AssertionError(f"asked for {asked}")

    monkeypatch.setattr(Unrestricted, "allows", refuse)
    monkeypatch.setattr(Unrestricted, "allows_any", refuse)
    for number, case in enumerate(CASES):
        subject = await subject_of(node, case, f"orders-{number}")
        await node.ask(case.request(subject), case.version)


@in_loop
async def test_rights_of_others_and_from_other_hosts_do_not_count(node: QuietNode) -> None:
    node.restrict()
    (case,) = (case for case in CASES if case.name == "fetch")
    subject = await subject_of(node, case, "orders")
    await node.allow(Operation.READ, ResourceType.TOPIC, "orders", principal=BOB)
    await node.allow(Operation.READ, ResourceType.TOPIC, "orders", host="192.0.2.8")
    assert case.code(await node.ask(case.request(subject), case.version)) == TOPIC_REFUSED
    await node.allow(Operation.READ, ResourceType.TOPIC, "orders", host="192.0.2.7")
    assert case.code(await node.ask(case.request(subject), case.version)) == 0


@in_loop
async def test_a_transactional_id_without_the_right_comes_before_the_topic(node: QuietNode) -> None:
    node.restrict()
    (case,) = (case for case in CASES if case.name == "produce in a transaction")
    subject = await subject_of(node, case, "orders")
    assert case.code(await node.ask(case.request(subject), case.version)) == TRANSACTIONAL_ID_REFUSED
    assert (await node.create("payments")).partitions[0].log_end_offset == 0


# --- Metadata and DescribeTopicPartitions


@pytest.mark.parametrize("version", [0, 1, 9, 13])
@in_loop
async def test_all_topics_are_those_that_the_client_may_describe(node: QuietNode, version: int) -> None:
    node.restrict()
    for name in ("a", "b", "c", "d"):
        await node.create(name)
    request = MetadataRequest(topics=None if version else [])
    assert (await node.ask(request, version)).topics == []
    for operation, name in ((Operation.DESCRIBE, "a"), (Operation.READ, "c"), (Operation.DESCRIBE_CONFIGS, "d")):
        await node.allow(operation, ResourceType.TOPIC, name)
    assert [one.name for one in (await node.ask(request, version)).topics] == ["a", "c"]


@in_loop
async def test_a_topic_by_id_is_not_named_to_clients_that_may_not_describe_it(node: QuietNode) -> None:
    node.restrict()
    topic = await node.create("secret")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=one, name=None) for one in (topic.topic_id, UNKNOWN_ID)]
    )
    known, unknown = (await node.ask(request, 12)).topics
    assert (known.error_code, known.name, known.topic_id, known.partitions) == (
        TOPIC_REFUSED,
        None,
        topic.topic_id,
        [],
    )
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@in_loop
async def test_authorized_operations_are_those_of_the_client(node: QuietNode) -> None:
    node.restrict()
    await node.create("orders")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("orders", "missing", "secret")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    await node.allow(Operation.READ, ResourceType.TOPIC, "orders")
    await node.allow(Operation.ALL, ResourceType.TOPIC, "missing")
    response = await node.ask(request, 10)
    bits = [one.topic_authorized_operations for one in response.topics]
    assert bits == [1 << Operation.READ | 1 << Operation.DESCRIBE, TOPIC_OPERATIONS, NOT_ASKED]
    assert response.cluster_authorized_operations == 0
    await node.allow(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    response = await node.ask(request, 10)
    assert response.cluster_authorized_operations == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    await node.allow(Operation.ALL, ResourceType.CLUSTER, CLUSTER_NAME)
    assert (await node.ask(request, 10)).cluster_authorized_operations == CLUSTER_OPERATIONS


@in_loop
async def test_topics_without_the_right_to_create_them_are_not_created(node: QuietNode) -> None:
    node.restrict()
    await node.allow(Operation.DESCRIBE, ResourceType.TOPIC, "*")
    await node.allow(Operation.CREATE, ResourceType.TOPIC, "mine")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("mine", "yours")])
    mine, yours = (await node.ask(request, 9)).topics
    assert (mine.error_code, yours.error_code) == (0, TOPIC_REFUSED)
    assert node.topics.catalogue.names() == ["mine"]


@in_loop
async def test_pages_of_topics_leave_out_what_the_client_may_not_describe(node: QuietNode) -> None:
    node.restrict()
    for name in "abcdef":
        await node.create(name)
    for name in "bdf":
        await node.allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
    seen = []
    while True:
        response = await node.ask(request, 0)
        seen += [(one.name, one.topic_authorized_operations) for one in response.topics]
        request.cursor = response.next_cursor
        if request.cursor is None:
            break
        # A cursor names a topic that the client may see.
        assert request.cursor.topic_name in "bdf"
    assert seen == [(name, 1 << Operation.DESCRIBE) for name in "bdf"]


@pytest.mark.parametrize("request_of_all", [MetadataRequest(topics=None), DescribeTopicPartitionsRequest(topics=[])])
@in_loop
async def test_many_topics_that_the_client_may_not_see_do_not_hold_up_others(
    node: QuietNode, request_of_all: Any
) -> None:
    node.restrict()
    for number in range(600):
        await node.create(f"secret-{number}")
    await node.create("visible")
    await node.allow(Operation.DESCRIBE, ResourceType.TOPIC, "visible")
    others = 0

    async def others_run() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others_run())
    response = await node.ask(request_of_all, 0 if isinstance(request_of_all, DescribeTopicPartitionsRequest) else 9)
    task.cancel()
    assert [one.name for one in response.topics] == ["visible"]
    assert others > 2


# --- DeleteTopics


@in_loop
async def test_a_topic_that_cannot_be_deleted_is_named_only_to_clients_that_may_describe_it(node: QuietNode) -> None:
    node.restrict()
    topic = await node.create("orders")
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=1000)
    by_name = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000)
    (hidden,) = (await node.ask(by_id, 6)).responses
    assert (hidden.error_code, hidden.name, hidden.topic_id) == (TOPIC_REFUSED, None, topic.topic_id)
    (hidden,) = (await node.ask(by_name, 6)).responses
    assert (hidden.error_code, hidden.name, hidden.topic_id) == (TOPIC_REFUSED, "orders", ZERO_UUID)
    await node.allow(Operation.DESCRIBE, ResourceType.TOPIC, "*")
    (seen,) = (await node.ask(by_id, 6)).responses
    assert (seen.error_code, seen.name, seen.topic_id) == (TOPIC_REFUSED, "orders", topic.topic_id)
    (seen,) = (await node.ask(by_name, 6)).responses
    assert (seen.error_code, seen.name, seen.topic_id) == (TOPIC_REFUSED, "orders", ZERO_UUID)
    missing = DeleteTopicsRequest(topics=[DeleteTopicState(name="missing")], timeout_ms=1000)
    (unknown,) = (await node.ask(missing, 6)).responses
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.topics.get("orders") is topic


@in_loop
async def test_a_name_and_its_id_are_matched_only_for_clients_that_may_delete_the_topic(node: QuietNode) -> None:
    node.restrict()
    topic = await node.create("orders")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="orders"), DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=1000
    )
    refused = (await node.ask(request, 6)).responses
    assert [(one.name, one.topic_id) for one in refused] == [("orders", ZERO_UUID), (None, topic.topic_id)]
    assert {one.error_code for one in refused} == {TOPIC_REFUSED}
    await node.allow(Operation.DELETE, ResourceType.TOPIC, "orders")
    (matched,) = (await node.ask(request, 6)).responses
    assert (matched.name, matched.topic_id, matched.error_code) == (
        "orders",
        topic.topic_id,
        ErrorCode.INVALID_REQUEST,
    )


@in_loop
async def test_one_topic_of_a_request_without_the_right_does_not_keep_others_from_it(node: QuietNode) -> None:
    node.restrict()
    await node.create("mine")
    await node.create("yours")
    await node.allow(Operation.DELETE, ResourceType.TOPIC, "mine")
    states = [DeleteTopicState(name=name) for name in ("yours", "mine", "missing")]
    responses = (await node.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)).responses
    assert [one.error_code for one in responses] == [TOPIC_REFUSED, 0, TOPIC_REFUSED]
    assert node.topics.catalogue.names() == ["yours"]


def test_refusals_are_kafkas() -> None:
    assert (TOPIC_REFUSED, CLUSTER_REFUSED, TRANSACTIONAL_ID_REFUSED) == (29, 31, 53)
