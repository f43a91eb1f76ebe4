"""Random requests of two tenants and an administrator, compared with a twin that has a set of names per client."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.access.scope import prefix_of
from kwire.errors import ErrorCode
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.delete_groups import DeleteGroupsRequest
from kwire.wire.messages.delete_topics import DeleteTopicsRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.record_batch import Record, build_batch
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.node import QuietNode, in_loop
from tests.support.scopes import A, B, Client

STEPS = 400
# Few names, so that the clients use the same ones. One looks like a name with a prefix.
NAMES = ("orders", "a.b", "x_y", B.full_name("orders"), f"kws-{A.id}", "kwire-audit2")


class Twin:
    """The names of one client. The administrator has those of nobody else, too."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.offsets: dict[str, dict[str, int]] = defaultdict(dict)
        self.transactional_ids: set[str] = set()


class Pair:
    """A client and its twin. Each step does the same with both."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client = client
        self.twin = Twin()
        self._chance = chance

    def name(self) -> str:
        # A name with a prefix is an ordinary plain name for a tenant. For an administrator it is a name of the scope.
        is_admin = self.client.scope is None
        return self._chance.choice([name for name in NAMES if not (is_admin and prefix_of(name))])

    async def create_topic(self) -> None:
        name = self.name()
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        (result,) = (await self.client.ask(CreateTopicsRequest(topics=[topic]))).topics
        is_new = name not in self.twin.topics
        assert (result.name, result.error_code) == (name, 0 if is_new else ErrorCode.TOPIC_ALREADY_EXISTS)
        self.twin.topics.setdefault(name, 0)

    async def delete_topic(self) -> None:
        name = self.name()
        (result,) = (await self.client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)).responses
        known = name in self.twin.topics
        assert (result.name, result.error_code) == (name, 0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.twin.topics.pop(name, None)
        for offsets in self.twin.offsets.values():
            offsets.pop(name, None)

    async def produce(self) -> None:
        name = self.name()
        data = PartitionProduceData(index=0, records=build_batch([Record(None, b"v")]))
        topic = TopicProduceData(name=name, partition_data=[data])
        response = await self.client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 12)
        (answered,) = response.responses
        (one,) = answered.partition_responses
        assert answered.name == name
        if name in self.twin.topics:
            assert (one.error_code, one.base_offset) == (0, self.twin.topics[name])
            self.twin.topics[name] += 1
        else:
            assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def end_offset(self) -> None:
        name = self.name()
        asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        (topic,) = (await self.client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]))).topics
        offset = self.twin.topics.get(name, -1)
        assert (topic.name, topic.partitions[0].offset) == (name, offset)

    async def commit(self) -> None:
        group, name, offset = self.name(), self.name(), self._chance.randrange(1000)
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        asked = OffsetCommitRequestTopic(name=name, partitions=[one])
        response = await self.client.ask(OffsetCommitRequest(group_id=group, member_id="", topics=[asked]), 9)
        (topic,) = response.topics
        known = name in self.twin.topics
        code = 0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (topic.name, topic.partitions[0].error_code) == (name, code)
        if known:
            self.twin.offsets[group][name] = offset

    async def delete_group(self) -> None:
        group = self.name()
        (result,) = (await self.client.ask(DeleteGroupsRequest(groups_names=[group]))).results
        assert result.group_id == group
        assert (result.error_code == 0) or not self.twin.offsets.get(group)
        self.twin.offsets.pop(group, None)

    async def init_producer(self) -> None:
        name = self.name()
        response = await self.client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
        assert response.error_code == 0
        self.twin.transactional_ids.add(name)

    async def describe_transaction(self) -> None:
        name = self.name()
        (state,) = (await self.client.ask(DescribeTransactionsRequest(transactional_ids=[name]))).transaction_states
        known = name in self.twin.transactional_ids
        code = 0 if known else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (state.transactional_id, state.error_code) == (name, code)

    async def fetch_offsets(self) -> None:
        group = self.name()
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (answered,) = (await self.client.ask(request, 9)).groups
        found = {topic.name: topic.partitions[0].committed_offset for topic in answered.topics}
        assert (answered.group_id, found) == (group, self.twin.offsets.get(group, {}))

    async def seen(self) -> dict[str, set[str]]:
        """All names that the client can list."""
        metadata = await self.client.ask(MetadataRequest(topics=None))
        groups = await self.client.ask(ListGroupsRequest())
        transactions = await self.client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        return {
            "topics": {one.name for one in metadata.topics if not one.is_internal},
            "groups": {one.group_id for one in groups.groups},
            "ids": {one.transactional_id for one in transactions.transaction_states},
        }

    def expected(self, full_name: Any = str) -> dict[str, set[str]]:
        return {
            "topics": set(map(full_name, self.twin.topics)),
            "ids": set(map(full_name, self.twin.transactional_ids)),
        }


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1") as quiet:
        yield quiet


@in_loop
async def test_clients_see_what_a_server_of_their_own_would_show(node: QuietNode) -> None:
    chance = random.Random(announced_seed())
    await node.topics.offsets_topic()
    await node.topics.transactions_topic()
    pairs = [Pair(Client(node, scope), chance) for scope in (A, B, None)]
    tenants, admin = pairs[:2], pairs[2]
    steps = [
        "create_topic", "delete_topic", "produce", "produce", "end_offset", "commit", "commit", "delete_group",
        "init_producer", "describe_transaction", "fetch_offsets",
    ]  # fmt: skip
    for number in range(repetitions(quick=STEPS, full=10 * STEPS)):
        pair = chance.choice(pairs)
        await getattr(pair, chance.choice(steps))()
        if number % 20 == 0:
            everything = admin.expected()
            for tenant in tenants:
                seen = await tenant.seen()
                assert {kind: seen[kind] for kind in ("topics", "ids")} == tenant.expected()
                # A group can outlive its last offset.
                assert (
                    {group for group, offsets in tenant.twin.offsets.items() if offsets} <= seen["groups"] <= set(NAMES)
                )
                for kind, names in tenant.expected(tenant.client.full_name).items():
                    everything[kind] |= names
            seen = await admin.seen()
            assert {kind: seen[kind] for kind in everything} == everything
