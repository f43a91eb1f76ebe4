"""GroupMember: joins, rebalances and leaves with a real coordinator, of a kwire server or of an Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import Unreachable
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.descriptions import GroupDescriptions
from kwire.kafka_client.groups.member import GroupMember
from kwire.kafka_client.groups.membership import JoinedMember, Phase, Timeouts
from kwire.kafka_client.groups.waiting_connections import WaitingConnections
from kwire.kafka_client.settings import ClientSettings, addresses_of
from tests.support.apache_cluster import ON_APACHE
from tests.support.engines import delete_all_groups
from tests.support.node import TEST_TIMEOUT_S, in_uvloop, running_node

POLL_S = 0.01
TIMEOUTS = Timeouts(10_000, 10_000)
LEFT = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "it has left")
# Longer than any test.
NEVER_S = 3_600.0


class TestSubscriber:
    """Gives each member the names of all members. Releases its partitions at once if the group rebalances."""

    __test__ = False

    def __init__(self) -> None:
        self.member: GroupMember | None = None
        self.is_broken = False

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        return [("names", b"")]

    async def assign(self, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        if self.is_broken:
            raise ValueError("the assignor is broken")
        names = ",".join(sorted(one.member_id for one in members)).encode()
        return {one.member_id: names for one in members}

    async def is_assignment_outdated(self) -> bool:
        return False

    def changed(self) -> None:
        assert self.member is not None
        if self.member.membership.phase is Phase.RELEASING:
            self.member.release()


class Group:
    """The members of one group."""

    def __init__(self, upstream: str) -> None:
        self.cluster = Cluster(ClientSettings(addresses_of(upstream)))
        self.coordinators = Coordinators(self.cluster)
        self.connections = WaitingConnections(self.cluster)

    def new(self, subscriber: TestSubscriber) -> GroupMember:
        subscriber.member = GroupMember(self.coordinators, self.connections, "g", TIMEOUTS, subscriber)
        return subscriber.member

    async def joined(self, subscriber: TestSubscriber) -> GroupMember:
        member = self.new(subscriber)
        await member.join()
        member.start()
        return member

    async def members(self) -> list[str]:
        """The members that the coordinator knows."""
        described = await GroupDescriptions(self.coordinators).find("g")
        return [] if described is None else sorted(one.member_id for one in described.members)


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def upstream(request: pytest.FixtureRequest) -> str | None:
    """The address of an Apache Kafka, or None for a server that the test starts."""
    return request.getfixturevalue("apache_kafka").bootstrap if request.param == "apache" else None


@asynccontextmanager
async def group_over(upstream: str | None, directory: Path) -> AsyncIterator[Group]:
    if upstream is None:
        async with running_node(directory) as node, group_over(node.kafka_listeners[0].address, directory) as one:
            yield one
        return
    group = Group(upstream)
    try:
        yield group
    finally:
        group.connections.close()
        group.cluster.close()
        await delete_all_groups(upstream)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not is_so():
            await asyncio.sleep(POLL_S)


async def share(*members: GroupMember) -> None:
    """Wait until the leader has given all members the names of exactly these."""
    names = ",".join(sorted(one.membership.member_id for one in members)).encode()
    for one in members:
        one.heartbeat_soon()
    await until(
        lambda: all((one.membership.phase, one.membership.assignment) == (Phase.STABLE, names) for one in members)
    )


@in_uvloop
async def test_members_join_rebalance_and_leave(tmp_path: Path, upstream: str | None) -> None:
    async with group_over(upstream, tmp_path) as group:
        first = await group.joined(TestSubscriber())
        await share(first)
        second = await group.joined(TestSubscriber())
        await share(first, second)
        assert first.membership.generation == second.membership.generation == 2
        assert await group.members() == sorted(one.membership.member_id for one in (first, second))
        await first.end(LEFT)
        await share(second)
        await second.end(LEFT)
        assert await group.members() == []
        assert group.connections._used == set()


@in_uvloop
async def test_a_member_that_fails_leaves(tmp_path: Path, upstream: str | None) -> None:
    async with group_over(upstream, tmp_path) as group:
        subscriber = TestSubscriber()
        subscriber.is_broken = True
        member = await group.joined(subscriber)
        await until(lambda: member.membership.is_ended)
        assert member.membership.error is not None
        assert member.membership.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await group.members() == [member.membership.member_id]
        await member.end(LEFT)
        assert await group.members() == []


@in_uvloop
async def test_a_join_waits_for_the_coordinator(
    tmp_path: Path, upstream: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group_over(upstream, tmp_path) as group:
        failures = fail(group, monkeypatch, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not yet"), 2)
        member = await group.joined(TestSubscriber())
        assert failures == []
        await share(member)
        await member.end(LEFT)
        # An error that does not pass is the answer.
        fail(group, monkeypatch, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"), 1)
        refused = group.new(TestSubscriber())
        with pytest.raises(KafkaError) as raised:
            await refused.join()
        assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@in_uvloop
async def test_a_heartbeat_that_fails_is_repeated_before_the_session_ends(
    tmp_path: Path, upstream: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group_over(upstream, tmp_path) as group:
        member = await group.joined(TestSubscriber())
        await share(member)
        # The only heartbeats are the one that is asked for here, and its repetitions.
        member._heartbeat_seconds = NEVER_S
        member.heartbeat_soon()
        failures = fail(group, monkeypatch, Unreachable("away"), 3)
        await until(lambda: failures == [])
        await until(lambda: not member._is_repeating)
        assert member.membership.phase is Phase.STABLE
        await member.end(LEFT)


def fail(group: Group, monkeypatch: pytest.MonkeyPatch, error: KafkaError, count: int) -> list[KafkaError]:
    """Let the next searches for the coordinator fail. Returns the errors that were not raised yet."""
    failures = [error] * count
    find = group.coordinators.node_of

    async def node_of(group_id: str) -> int:
        if failures:
            raise failures.pop()
        return await find(group_id)

    monkeypatch.setattr(group.coordinators, "node_of", node_of)
    return failures
