"""Committed offsets and descriptions of groups of a cluster, which is a kwire server here or an Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.descriptions import GroupDescriptions
from kwire.kafka_client.groups.offsets import Committed, GroupOffsets
from kwire.kafka_client.settings import ClientSettings, addresses_of
from tests.support.apache_cluster import ON_APACHE
from tests.support.engines import delete_all_groups, delete_all_topics
from tests.support.node import TEST_TIMEOUT_S, in_uvloop, running_node

POLL_S = 0.02


class Groups:
    def __init__(self, upstream: str) -> None:
        self.cluster = Cluster(ClientSettings(addresses_of(upstream)), lambda: 0.5)
        self.coordinators = Coordinators(self.cluster)
        self.offsets = GroupOffsets(self.coordinators)
        self.descriptions = GroupDescriptions(self.coordinators)
        self.admin = Admin(self.cluster)


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def upstream(request: pytest.FixtureRequest) -> str | None:
    """The address of an Apache Kafka, or None for a server that the test starts."""
    return request.getfixturevalue("apache_kafka").bootstrap if request.param == "apache" else None


async def commit(groups: Groups, group_id: str, *offsets: tuple[int, int]) -> None:
    """Commit offsets of the new topic `t`, as soon as the coordinator knows it."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while refused := await groups.offsets.commit(group_id, "t", offsets):
            assert set(refused.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def groups_over(upstream: str | None, directory: Path) -> AsyncIterator[Groups]:
    if upstream is None:
        async with running_node(directory) as node, groups_over(node.kafka_listeners[0].address, directory) as one:
            yield one
        return
    groups = Groups(upstream)
    try:
        yield groups
    finally:
        groups.cluster.close()
        await delete_all_groups(upstream)
        await delete_all_topics(upstream)


@in_uvloop
async def test_offsets_are_committed_and_fetched(tmp_path: Path, upstream: str | None) -> None:
    async with groups_over(upstream, tmp_path) as groups:
        await groups.admin.create_topic("t", 3)
        offsets = groups.offsets
        assert await offsets.committed("g") == {}
        await commit(groups, "g", (0, 5), (2, 7))
        assert await offsets.commit("g", "t", [(0, 6)]) == {}
        all_of_g = {"t": {0: Committed(6, -1, ""), 2: Committed(7, -1, "")}}
        assert await offsets.committed("g") == all_of_g
        assert await offsets.committed("g", {"t": [0, 1]}, is_stable=True) == {"t": {0: Committed(6, -1, "")}}
        refused = await offsets.commit("g", "t", [(0, 9)], "nobody", 3)
        assert refused[0] in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        assert await offsets.committed("g") == all_of_g


@in_uvloop
async def test_groups_are_listed_described_and_deleted(tmp_path: Path, upstream: str | None) -> None:
    async with groups_over(upstream, tmp_path) as groups:
        await groups.admin.create_topic("t", 1)
        for name in ("b", "a", "café / c"):
            await commit(groups, name, (0, 1))
        descriptions = groups.descriptions
        listed = await descriptions.all()
        assert [one.group_id for one in listed] == ["a", "b", "café / c"]
        described = await descriptions.describe(listed)
        assert {(one.group_id, one.kind, one.state, len(one.members)) for one in described.values()} == {
            (name, "classic", "Empty", 0) for name in ("a", "b", "café / c")
        }
        assert await descriptions.find("b") == described["b"]
        assert await descriptions.find("unknown") is None
        await descriptions.delete("b")
        assert await descriptions.find("b") is None
        with pytest.raises(KafkaError) as refused:
            await descriptions.delete("b")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@in_uvloop
async def test_a_coordinator_that_is_wrong_is_asked_for_again(tmp_path: Path, upstream: str | None) -> None:
    async with groups_over(upstream, tmp_path) as groups:
        await groups.admin.create_topic("t", 1)
        await commit(groups, "g", (0, 1))
        # A broker that does not exist any more.
        groups.coordinators._nodes["g"] = 4711
        assert (await groups.offsets.committed("g"))["t"][0].offset == 1
        assert groups.coordinators._nodes["g"] != 4711
