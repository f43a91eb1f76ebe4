"""Rights on groups, offsets and transactional ids: each request in each version, with and without its rights."""

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.broker.topics.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.shared.needs import Need
from kwire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.wire.messages.describe_groups import DescribeGroupsRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from kwire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.support.group_access import (
    ADMIN,
    ALICE,
    BOB,
    CONSUMERS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CLUSTER,
    GROUP,
    HOST,
    IDEMPOTENT_WRITE,
    OTHER_TOPIC,
    READ,
    REFUSALS,
    TOPIC,
    TRANSACTION,
    WRITE,
    RestrictedNode,
    Right,
    add_request,
    codes,
    commit_request,
    consumer_join,
    delete_offsets_request,
    fetch_request,
    find_request,
    group_right,
    prepared,
    topic_right,
    transaction_right,
    txn_commit_request,
)
from tests.support.group_access_cases import TABLE, Row, row
from tests.support.node import in_loop

# The table


def cases(rights: tuple[Right, ...]) -> Iterator[tuple[str, list[Acl], ResourceType | None]]:
    """Yield the name of a case, its ACLs, and the type of the resource on which the request is refused; None if not."""
    yield "no right", [], rights[0].resource_type
    every = [right.acl() for right in rights]
    yield "all rights", every, None
    yield "rights of another principal", [right.acl(BOB) for right in rights], rights[0].resource_type
    for number, right in enumerate(rights):
        others = [one for at, one in enumerate(every) if at != number]
        kind = right.resource_type
        yield f"all but {right}", others, kind
        yield f"denied {right}", [*every, right.acl(permission=Permission.DENY)], kind
        if kind is ResourceType.CLUSTER:
            continue
        yield f"another resource than {right}", [*others, right.acl(name="elsewhere")], kind
        prefix = right.acl(name=right.name[:-1], pattern_type=PatternType.PREFIXED)
        yield f"prefix of {right}", [*others, prefix], None
        longer = right.acl(name=right.name + "-", pattern_type=PatternType.PREFIXED)
        yield f"a prefix that {right} does not have", [*others, longer], kind


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name.replace(" ", "-"))
@in_loop
async def test_a_request_needs_its_rights(restricted: RestrictedNode, row: Row) -> None:
    world = await prepared(restricted)
    for name, acls, refused in cases(row.rights):
        await restricted.set_acls(acls)
        for version in row.versions:
            got = codes(await restricted.ask(row.request(world, version), version))
            expected = row.reached if refused is None else {REFUSALS[refused]}
            assert got == expected, (row.name, version, name)


def test_every_handler_of_groups_and_transactions_is_in_the_table() -> None:
    """Those that hide instead of refusing have tests of their own."""
    types = {ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID}
    needing = {
        one.api.name
        for one in HANDLERS.values()
        if types & {need.resource_type for need in one.needs} and "Config" not in one.api.name
    }
    assert needing - {"Produce", "ListGroups", "ListTransactions"} == {row.name.split()[0] for row in TABLE}


# Exactly the declared needs


class RecordingAccess:
    """Records what is asked for, and refuses some of it."""

    principal, host, scope, is_unrestricted, revision = ALICE, HOST, None, False, 1

    def __init__(self, *refused: Need) -> None:
        self._refused = refused
        self.asked: set[Need] = set()

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.allows_any(operation, resource_type)

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        need = Need(operation, resource_type)
        self.asked.add(need)
        return need not in self._refused

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return 0


MORE_REQUESTS = [
    row("ListGroups", 0, 5, lambda w, v: ListGroupsRequest()),
    row("ListTransactions", 0, 2, lambda w, v: ListTransactionsRequest(state_filters=[], producer_id_filters=[])),
    row(
        "OffsetFetch of all topics",
        2,
        10,
        lambda w, v: OffsetFetchRequest(
            group_id=GROUP, topics=None, groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
        ),
    ),
    row(
        "ConsumerGroupHeartbeat with an expression",
        1,
        1,
        lambda w, v: consumer_join("another", regex="topic-.*", group_id="by-expression"),
    ),
]


@pytest.mark.parametrize("name", sorted({row.name.split()[0] for row in [*TABLE, *MORE_REQUESTS]}))
@in_loop
async def test_a_handler_asks_exactly_for_its_declared_needs(restricted: RestrictedNode, name: str) -> None:
    world = await prepared(restricted)
    (handler,) = (one for one in HANDLERS.values() if one.api.name == name)
    asked: set[Need] = set()
    for each in [*TABLE, *MORE_REQUESTS]:
        if each.name.split()[0] != name:
            continue
        for version in each.versions:
            for refused in ((), *((need,) for need in handler.needs)):
                access = RecordingAccess(*refused)
                await restricted.ask(each.request(world, version), version, access=access)
                asked |= access.asked
    assert asked == set(handler.needs)


# Requests that hide


@in_loop
async def test_list_groups_shows_what_may_be_described(restricted: RestrictedNode) -> None:
    await prepared(restricted)

    async def listed(version: int) -> set[str]:
        answer = await restricted.ask(ListGroupsRequest(), version)
        assert answer.error_code == ErrorCode.NONE
        return {one.group_id for one in answer.groups}

    for version in range(6):
        await restricted.set_acls([])
        assert await listed(version) == set()
        # READ implies DESCRIBE.
        await restricted.set_acls([group_right(READ).acl()])
        assert await listed(version) == {GROUP}
        await restricted.set_acls([DESCRIBE_CLUSTER.acl()])
        assert await listed(version) == {GROUP, CONSUMERS}
        prefix = group_right(DESCRIBE).acl(name="con", pattern_type=PatternType.PREFIXED)
        await restricted.set_acls([prefix])
        assert await listed(version) == {CONSUMERS}
        await restricted.set_acls([prefix, group_right(DESCRIBE, CONSUMERS).acl(permission=Permission.DENY)])
        assert await listed(version) == set()


@in_loop
async def test_list_transactions_shows_what_may_be_described(restricted: RestrictedNode) -> None:
    await prepared(restricted)
    init = InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1000)
    assert (await restricted.ask(init, 4, ADMIN)).error_code == ErrorCode.NONE

    async def listed(version: int) -> set[str]:
        answer = await restricted.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)
        assert answer.error_code == ErrorCode.NONE
        return {one.transactional_id for one in answer.transaction_states}

    for version in range(3):
        await restricted.set_acls([DESCRIBE_CLUSTER.acl()])
        assert await listed(version) == set()
        await restricted.set_acls([transaction_right(DESCRIBE).acl()])
        assert await listed(version) == {TRANSACTION}
        await restricted.set_acls([transaction_right(WRITE, "oth").acl(pattern_type=PatternType.PREFIXED)])
        assert await listed(version) == {"other"}
        deny = transaction_right(DESCRIBE).acl(permission=Permission.DENY)
        await restricted.set_acls([transaction_right(DESCRIBE, "*").acl(), deny])
        assert await listed(version) == {"other"}


@in_loop
async def test_a_described_transaction_hides_topics(restricted: RestrictedNode) -> None:
    await prepared(restricted)
    request = DescribeTransactionsRequest(transactional_ids=[TRANSACTION, "none"])
    await restricted.set_acls([transaction_right(DESCRIBE).acl(), topic_right(DESCRIBE, OTHER_TOPIC).acl()])
    described, refused = (await restricted.ask(request, 0)).transaction_states
    assert (described.transaction_state, [one.topic for one in described.topics]) == ("Ongoing", [OTHER_TOPIC])
    # An id that does not exist is refused like any other.
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.topics == []


@in_loop
async def test_offsets_of_all_topics_hide_topics(restricted: RestrictedNode) -> None:
    await prepared(restricted)
    await restricted.set_acls([group_right(DESCRIBE).acl(), topic_right(DESCRIBE, OTHER_TOPIC).acl()])
    for version in range(2, 11):
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=None,
            groups=[
                OffsetFetchRequestGroup(group_id=GROUP, topics=None),
                OffsetFetchRequestGroup(group_id="other", topics=None),
            ],
        )
        answer = await restricted.ask(request, version)
        if version < 8:
            found = answer.topics
        else:
            assert [one.error_code for one in answer.groups] == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED]
            assert answer.groups[1].topics == []
            found = answer.groups[0].topics
        assert [(len(one.partitions), one.partitions[0].committed_offset) for one in found] == [(1, 5)]
        assert version == 10 or [one.name for one in found] == [OTHER_TOPIC]


@in_loop
async def test_refused_topics_do_not_hinder_the_others(restricted: RestrictedNode) -> None:
    """Also the existence of a refused topic is not revealed."""
    world = await prepared(restricted)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await restricted.set_acls(
        [
            group_right(READ).acl(),
            group_right(DELETE).acl(),
            topic_right(READ).acl(),
            transaction_right(WRITE).acl(),
        ]
    )

    def by_topic(topics: Any) -> list[int]:
        return [one.error_code for topic in topics for one in topic.partitions]

    for version in range(2, 11):
        answer = await restricted.ask(commit_request(world, version, OTHER_TOPIC, TOPIC, "missing"), version)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else refused
        assert by_topic(answer.topics) == [refused, ErrorCode.NONE, missing]
    for version in range(7):
        answer = await restricted.ask(txn_commit_request(world, OTHER_TOPIC, TOPIC, "missing"), version)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version == 6 else refused
        assert by_topic(answer.topics) == [refused, ErrorCode.NONE, missing]
    for version in range(1, 11):
        answer = await restricted.ask(fetch_request(world, OTHER_TOPIC, TOPIC, "missing"), version)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else refused
        found = answer.topics if version < 8 else answer.groups[0].topics
        assert by_topic(found) == [ErrorCode.NONE, refused, missing]
        assert [one.committed_offset for topic in found for one in topic.partitions] == [5, -1, -1]
    answer = await restricted.ask(delete_offsets_request(OTHER_TOPIC, TOPIC, "missing"), 0)
    assert by_topic(answer.topics) == [refused, ErrorCode.NONE, refused]


@in_loop
async def test_a_refused_topic_keeps_the_others_out_of_the_transaction(restricted: RestrictedNode) -> None:
    world = await prepared(restricted)
    await restricted.set_acls([transaction_right(WRITE).acl(), topic_right(WRITE).acl()])
    for version in range(4):
        answer = await restricted.ask(add_request(world, TOPIC, OTHER_TOPIC, "missing", OFFSETS_TOPIC), version)
        errors = [
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
        assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED] + [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3


@in_loop
async def test_a_write_right_on_any_topic_is_enough_for_idempotence(restricted: RestrictedNode) -> None:
    await restricted.node.topics.transactions_topic()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    write = topic_right(WRITE, "a-topic-that-does-not-exist")
    for acls, expected in (
        ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([topic_right(READ).acl()], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([transaction_right(WRITE).acl()], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([write.acl()], ErrorCode.NONE),
        (
            [write.acl(), topic_right(WRITE, "*").acl(permission=Permission.DENY)],
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        ([write.acl(pattern_type=PatternType.PREFIXED)], ErrorCode.NONE),
        ([IDEMPOTENT_WRITE.acl()], ErrorCode.NONE),
    ):
        await restricted.set_acls(acls)
        for version in range(6):
            answer = await restricted.ask(request, version)
            assert answer.error_code == expected
            assert (answer.producer_id >= 0) == (expected is ErrorCode.NONE)
    # CVE-2018-17196: what counts is the id of the request. The right to write idempotently is not enough for an id.
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    for version in range(6):
        answer = await restricted.ask(request, version)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@in_loop
async def test_refused_keys_create_no_internal_topic(restricted: RestrictedNode) -> None:
    topics = restricted.node.topics
    for key_type in (0, 1):
        for version in range(1 if key_type else 0, 7):
            answer = await restricted.ask(find_request(key_type, "k"), version)
            only = answer.coordinators[0] if version >= 4 else answer
            assert (only.node_id, only.host, only.port) == (-1, "", -1)
    assert topics.get(OFFSETS_TOPIC) is topics.get(TRANSACTIONS_TOPIC) is None
    await restricted.grant(group_right(DESCRIBE, "mine"))
    mine, other = (await restricted.ask(find_request(0, "mine", "other"), 4)).coordinators
    assert (mine.key, mine.error_code, mine.node_id) == ("mine", ErrorCode.NONE, 1)
    assert (other.key, other.error_code, other.node_id) == ("other", ErrorCode.GROUP_AUTHORIZATION_FAILED, -1)
    assert topics.get(OFFSETS_TOPIC) is not None


@in_loop
async def test_described_groups_have_the_real_operations(restricted: RestrictedNode) -> None:
    await prepared(restricted)
    consumers = group_right(Operation.READ, CONSUMERS)
    await restricted.set_acls(
        [group_right(READ).acl(), group_right(DELETE).acl(), consumers.acl(), topic_right(DESCRIBE).acl()]
    )
    request = DescribeGroupsRequest(groups=[GROUP, "other"], include_authorized_operations=True)
    for version in range(3, 7):
        described, refused = (await restricted.ask(request, version)).groups
        assert described.authorized_operations == 1 << READ | 1 << DELETE | 1 << DESCRIBE
        assert refused.authorized_operations == -(1 << 31)
        assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    consumer_request = ConsumerGroupDescribeRequest(group_ids=[CONSUMERS, "other"], include_authorized_operations=True)
    for version in range(2):
        described, refused = (await restricted.ask(consumer_request, version)).groups
        assert described.authorized_operations == 1 << READ | 1 << DESCRIBE
        assert refused.authorized_operations == -(1 << 31)
    await restricted.set_acls([consumers.acl()])
    described, _ = (await restricted.ask(consumer_request, 1)).groups
    assert (described.error_code, described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert described.authorized_operations == -(1 << 31)
