"""A quiet node with ACLs whose clients are principals, and requests about groups, offsets and transactional ids."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, NamedTuple

from kwire.access.access import Access
from kwire.access.acl import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.views import Views
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.wire.messages.find_coordinator import FindCoordinatorRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire.wire.messages.sync_group import SyncGroupRequest
from kwire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire.wire.schema import message_of
from tests.support.node import QuietNode, received

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
ADMIN = Principal("User", "admin")
HOST = "192.0.2.7"

GROUP, TOPIC, OTHER_TOPIC, TRANSACTION = "group-1", "topic-1", "topic-2", "tx-1"
# The group of the consumer protocol, in which a member has TOPIC.
CONSUMERS = "consumers-1"
UNKNOWN_ID = b"\x07" * 16
# Longer than any test, also on a busy machine.
TRANSACTION_TIMEOUT_MS = 600_000

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """An operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str

    def acl(
        self,
        principal: Principal = ALICE,
        *,
        permission: Permission = Permission.ALLOW,
        pattern_type: PatternType = PatternType.LITERAL,
        name: str | None = None,
    ) -> Acl:
        chosen = self.name if name is None else name
        return Acl(self.resource_type, chosen, pattern_type, principal, "*", self.operation, permission)


class RestrictedNode:
    """A quiet node with ACLs. A request is sent as one of the principals; ADMIN is a super user."""

    def __init__(self, node: QuietNode) -> None:
        self.node = node
        self.authorizer = AclAuthorizer(node.metastore, [ADMIN])

    async def grant(self, *rights: Right, principal: Principal = ALICE) -> None:
        await self.authorizer.add([right.acl(principal) for right in rights])

    async def set_acls(self, acls: Collection[Acl]) -> None:
        """Replace all ACLs."""
        await self.authorizer.remove([AclFilter()])
        await self.authorizer.add(list(acls))

    def context(self, version: int, principal: Principal = ALICE, access: Access | None = None) -> Context:
        views = Views(self.node.services, access or self.authorizer.access(principal, HOST))
        return Context(self.node.services, self.node.peer, version, "test", views)

    async def ask(self, request: Any, version: int, principal: Principal = ALICE, access: Access | None = None) -> Any:
        asked = decode_message(type(request), version, memoryview(bytearray(encode_message(request, version))))
        handler = HANDLERS[message_of(type(request)).key]
        answer = handler.handle(self.context(version, principal, access), asked)
        return received(await answer if inspect.isawaitable(answer) else answer, version)


class World(NamedTuple):
    """What the requests name: topics by id, and a producer."""

    ids: dict[str, bytes]
    producer_id: int
    producer_epoch: int


async def prepared(restricted: RestrictedNode) -> World:
    """Two topics, a classic group with an offset in each, a consumer group, and an open transaction in both topics."""
    node = restricted.node
    await node.topics.offsets_topic()
    await node.topics.transactions_topic()
    ids = {name: (await node.create(name, 2)).topic_id for name in (TOPIC, OTHER_TOPIC)}
    return await prepare(ids, lambda request, version: restricted.ask(request, version, ADMIN))


async def prepare(ids: dict[str, bytes], ask: Callable[[Any, int], Awaitable[Any]]) -> World:
    """Make the groups and the transaction of the two topics. `ask` sends a request of the super user."""
    world = World(ids, 0, 0)
    assert codes(await ask(commit_request(world, 10, TOPIC, OTHER_TOPIC), 10)) == {ErrorCode.NONE}
    answer = await ask(consumer_join("member", names=[TOPIC]), 1)
    assert answer.error_code == ErrorCode.NONE
    init = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    producer = await ask(init, 4)
    world = World(ids, producer.producer_id, producer.producer_epoch)
    assert codes(await ask(add_request(world, TOPIC, OTHER_TOPIC), 3)) == {ErrorCode.NONE}
    assert codes(await ask(add_offsets_request(world), 3)) == {ErrorCode.NONE}
    return world


# Requests


def find_request(key_type: int, *keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=list(keys))


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        # An unknown member is refused at once; a new one would wait for others.
        member_id="unknown",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync_request() -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id="unknown",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def leave_request() -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=GROUP, member_id="unknown", members=[MemberIdentity(member_id="unknown")])


def commit_request(world: World, version: int, *topics: str) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=world.ids.get(name, UNKNOWN_ID),
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")],
            )
            for name in topics
        ],
    )


def txn_commit_request(world: World, *topics: str) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=world.ids.get(name, UNKNOWN_ID),
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
                ],
            )
            for name in topics
        ],
    )


def fetch_request(world: World, *topics: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics],
        groups=[
            OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[
                    OffsetFetchRequestTopics(name=name, topic_id=world.ids.get(name, UNKNOWN_ID), partition_indexes=[0])
                    for name in topics
                ],
            )
        ],
    )


def delete_offsets_request(*topics: str) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in topics
        ],
    )


def consumer_join(
    member_id: str, *, names: list[str] | None = None, regex: str | None = None, group_id: str = CONSUMERS
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def add_request(world: World, *topics: str) -> AddPartitionsToTxnRequest:
    named = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics]
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=world.producer_id,
        v3_and_below_producer_epoch=world.producer_epoch,
        v3_and_below_topics=named,
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=TRANSACTION,
                producer_id=world.producer_id,
                producer_epoch=world.producer_epoch,
                topics=named,
            )
        ],
    )


def add_offsets_request(world: World) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=TRANSACTION,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        group_id=GROUP,
    )


def codes(message: Any) -> set[ErrorCode]:
    """All errors of a message; NONE alone if there are none."""
    found = set(_all_codes(message))
    return found - {ErrorCode.NONE} or {ErrorCode.NONE}


def _all_codes(message: Any) -> Iterator[ErrorCode]:
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield ErrorCode(value)
        for one in value if isinstance(value, list) else ():
            if hasattr(type(one), "__slots__"):
                yield from _all_codes(one)


def group_right(operation: Operation, name: str = GROUP) -> Right:
    return Right(operation, ResourceType.GROUP, name)


def topic_right(operation: Operation, name: str = TOPIC) -> Right:
    return Right(operation, ResourceType.TOPIC, name)


def transaction_right(operation: Operation, name: str = TRANSACTION) -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID, name)


READ, WRITE, DELETE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE
CLUSTER_ACTION = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
IDEMPOTENT_WRITE = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
DESCRIBE_CLUSTER = Right(DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
