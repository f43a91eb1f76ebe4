"""Attempts of a tenant on resources of another tenant and of nobody: every served API, in every version.

A request is generated from its declaration, about a name, an id or a session that exists elsewhere, and once more about
one that exists nowhere. The responses must be the same, and must not contain anything of the others.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire.access.scope import Scope
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.node import QuietNode, in_loop
from tests.support.scopes import VALUE, A, B, Client, Target, generated, masked
from tests.support.transactions import append_plain

SECRET, OPEN = "secret-one", "secret-two"
# Names of the same length that exist nowhere.
ABSENT = {SECRET: "absent-one", OPEN: "absent-two"}
# The id of a scope that does not exist.
NOBODY = Scope("nobody", "c" * len(B.id))
NAMES = (B.prefix, NOBODY.prefix, *ABSENT, *ABSENT.values())
UNKNOWN_ID = bytes(range(16))
UNKNOWN_SESSION = 12345
UNKNOWN_PRODUCER = 999_999
ZERO_ID = bytes(16)

# Other values of a request, by API key. Every API is tried with the usual values besides.
VARIANTS: dict[int, tuple[dict[str, Any], ...]] = {
    1: ({"replica_id": 5},),
    3: ({"allow_auto_topic_creation": True}, {"topics": None}),
    9: ({"topics": None}, {"require_stable": True}),
    10: ({"key_type": 1}, {"key_type": 2}),
    12: ({"group_instance_id": "static"},),
    13: ({"group_instance_id": "static"},),
    28: ({"generation_id_or_member_epoch": 1, "member_id": "m"},),
    32: ({"resource_type": 4}, {"resource_type": 8}, {"resource_type": 16}, {"resource_type": 32}),
    33: ({"resource_type": 4}, {"resource_type": 16}, {"resource_type": 32}),
    35: ({"topics": None},),
    43: ({"topic_partitions": None},),
    44: ({"resource_type": 4}, {"resource_type": 16}, {"resource_type": 32}),
    46: ({"topics": None},),
    66: ({"transactional_id_pattern": f".*{SECRET}"}, {"transactional_id_pattern": f"kws-{B.id}.*"}),
    68: ({"subscribed_topic_names": None, "subscribed_topic_regex": ".*"},),
    74: ({"resource_types": [2, 32]},),
    75: ({"topics": []}, {"cursor": None}),
}
# Values that every request of an API has.
FIXED: dict[int, dict[str, Any]] = {
    11: {"member_id": "unknown"},
    17: {"mechanism": "PLAIN"},
    19: {"configs": []},
    33: {"name": "retention.ms", "value": "60000"},
    44: {"name": "retention.ms", "value": "60000"},
    12: {"member_id": "unknown", "generation_id": 1},
    68: {"member_id": "member", "topic_partitions": [], "rack_id": None, "member_epoch": 0},
    75: {"cursor": None},
}
# APIs that are not about resources of a scope, or that the owner of a resource may not use on it either. All others
# have a request to which the owner gets another answer.
SAME_FOR_OWNER = {
    10,
    12,
    13,
    14,
    17,
    18,
    19,
    22,
    27,
    29,
    30,
    31,
    34,
    35,
    36,
    43,
    45,
    46,
    48,
    49,
    50,
    51,
    55,
    57,
    60,
    64,
    74,
}


class Attempt(NamedTuple):
    """A target that exists outside of the scope, and one that does not exist at all."""

    what: str
    target: Target
    control: Target


class World:
    """Tenants A and B and an administrator. B and the administrator have resources of all kinds, A has none."""

    def __init__(self, node: QuietNode) -> None:
        self.a, self.b, self.admin = (Client(node, scope) for scope in (A, B, None))
        self.node = node

    async def prepare(self) -> None:
        await self.node.topics.offsets_topic()
        await self.node.topics.transactions_topic()
        self.secret = await self._owned(self.b, SECRET)
        self.open = await self._owned(self.admin, OPEN)

    async def _owned(self, owner: Client, name: str) -> Target:
        """A topic with a record, a group with an offset, and an open transaction; all have the same name."""
        topic = await self.node.create(owner.full_name(name), 1)
        append_plain(topic.partitions[0], 1, VALUE)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m")
        committed = await owner.ask(
            OffsetCommitRequest(
                group_id=name, member_id="", topics=[OffsetCommitRequestTopic(name=name, partitions=[offset])]
            ),
            9,
        )
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        producer = await owner.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000))
        added = await owner.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
            ),
            3,
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE
        group_config = AlterConfigsResource(
            resource_type=32,
            resource_name=name,
            configs=[AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")],
        )
        joined = await owner.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=name,
                member_id="member",
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[name],
                topic_partitions=[],
            )
        )
        assert joined.error_code == ErrorCode.NONE
        altered = await owner.ask(IncrementalAlterConfigsRequest(resources=[group_config], validate_only=False))
        assert altered.responses[0].error_code == ErrorCode.NONE
        one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
        fetched = await owner.ask(
            FetchRequest(
                max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[FetchTopic(topic=name, partitions=[one])]
            ),
            12,
        )
        assert fetched.session_id
        return Target(name, topic.topic_id, fetched.session_id, producer.producer_id, producer.producer_epoch)

    def attempts(self) -> Iterator[Attempt]:
        for what, foreign in (("of B", self.secret), ("of no scope", self.open)):
            named = Target(foreign.name, ZERO_ID, 0, UNKNOWN_PRODUCER, 0)
            absent = named._replace(name=ABSENT[foreign.name])
            yield Attempt(f"the plain name {what}", named, absent)
            yield Attempt(
                f"a producer id {what}",
                named._replace(producer_id=foreign.producer_id, producer_epoch=foreign.producer_epoch),
                absent,
            )
            yield Attempt(
                f"a topic id {what}",
                named._replace(topic_id=foreign.topic_id),
                absent._replace(topic_id=UNKNOWN_ID),
            )
            yield Attempt(
                f"a fetch session {what}",
                named._replace(session_id=foreign.session_id),
                absent._replace(session_id=UNKNOWN_SESSION),
            )
        absent = absent._replace(name=NOBODY.full_name(SECRET))
        yield Attempt("the full name of B", absent._replace(name=B.full_name(SECRET)), absent)

    async def state(self) -> list[Any]:
        """All that A must not change."""
        seen: list[Any] = []
        for client, name in ((self.b, SECRET), (self.admin, OPEN)):
            (partition,) = self.node.topics.get(client.full_name(name)).partitions  # type: ignore[union-attr]
            seen.append((partition.log_start_offset, partition.high_watermark))
            seen.append(self.node.topics.get(client.full_name(name)).revision)  # type: ignore[union-attr]
            group = OffsetFetchRequestGroup(group_id=name, topics=None)
            seen.append(await client.ask(OffsetFetchRequest(groups=[group]), 9))
            seen.append(await client.ask(DescribeTransactionsRequest(transactional_ids=[name])))
            if client is self.b:
                seen.append(await client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[])))
                seen.append(await client.ask(ListGroupsRequest()))
                seen.append(await client.ask(MetadataRequest(topics=None)))
        return seen


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1") as quiet:
        yield quiet


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: HANDLERS[key].api.name)
@in_loop
async def test_other_scopes_do_not_exist(node: QuietNode, key: int, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(node)
    await world.prepare()
    api = HANDLERS[key].api
    before = await world.state()
    hidden = [B.prefix.encode(), A.prefix.encode(), VALUE, world.secret.topic_id, world.open.topic_id]
    count, is_other_for_owner = 0, False
    sent: set[bytes] = set()
    for attempt in world.attempts():
        for version in api.versions:
            for values in ({}, *VARIANTS.get(key, ())):
                count += 1
                values = {**FIXED.get(key, {}), **values}
                answers = []
                for target in (attempt.target, attempt.control):
                    request = generated(api.request, version, target, **values)
                    body = await world.a.ask_bytes(request, version)
                    # A client may get back what it has sent.
                    sent |= {target.name.encode(), target.topic_id}
                    for secret in hidden:
                        shown = any(secret in one for one in sent)
                        assert shown or body is None or secret not in body, (attempt.what, version, values)
                    answers.append(None if body is None else masked(world.a.decoded(api, version, body), NAMES))
                assert answers[0] == answers[1], (attempt.what, version, values)
    assert await world.state() == before
    for version in api.versions:
        for values in ({}, *VARIANTS.get(key, ())):
            values = {**FIXED.get(key, {}), **values}
            for target in (world.secret._replace(topic_id=ZERO_ID, session_id=0), world.secret):
                request = generated(api.request, version, target, **values)
                own = masked(await world.b.ask(request, version), NAMES)
                other = masked(await world.a.ask(request, version), NAMES)
                is_other_for_owner |= own != other
    assert is_other_for_owner == (key not in SAME_FOR_OWNER)
    with capsys.disabled():
        print(f"\n{api.name}: {count} attempts in {len(list(api.versions))} versions, 0 succeeded", end="")
