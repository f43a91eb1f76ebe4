"""HTTP members on a bridge: what the coordinator of the cluster does to them, and other members beside them."""

import asyncio
from itertools import chain
from pathlib import Path

import pytest
from aiohttp import ClientSession

from kwire.errors import ErrorCode
from kwire.kafka_client.groups import member as group_member
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.descriptions import GroupDescriptions
from kwire.streams.remote_groups import web_groups
from kwire.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from tests.server.frames import HOST
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine, running_bridge
from tests.support.node import in_uvloop
from tests.web.groups.engine_port import BridgePort, port_over
from tests.web.groups.groups_port import Port

over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)
WAIT_TIMEOUT_S = 30.0
POLL_S = 0.01


def bridge_of(port: Port) -> BridgePort:
    assert isinstance(port, BridgePort)
    return port


async def members_of(port: Port, group: str = "g") -> set[str]:
    """The members that the coordinator knows."""
    described = await GroupDescriptions(Coordinators(bridge_of(port).bridge._cluster)).find(group)
    return set() if described is None else {one.member_id for one in described.members}


async def assigned(*members: tuple[Port, str]) -> list[list[int]]:
    """The partitions of members when none of them waits for any more. The topic has four."""
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while True:
            found = [(await port.get(f"/g/members/{member}/assignment")).body for port, member in members]
            shares: list[list[int]] = [one["partitions"] for one in found]
            if {one["state"] for one in found} == {"stable"} and sorted(chain(*shares)) == [0, 1, 2, 3]:
                return shares
            await asyncio.sleep(POLL_S)


@over_clusters
@in_uvloop
async def test_a_bridge_that_stops_removes_its_members(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 4)
        member = await port.join("g")
        await assigned((port, member))
        assert await members_of(port) == {member}
        groups = bridge_of(port).bridge._groups
        await groups.close()
        assert await members_of(port) == set()
        assert groups.member_count == 0
        refused = await port.post("/g/join", {})
        assert (refused.status, refused.body["error"]["message"]) == (503, "the bridge is stopping")
        assert await members_of(port) == set()


@over_clusters
@in_uvloop
async def test_a_member_that_the_cluster_removes_gets_404_and_its_stream_ends(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 4)
        member = await port.join("g", session_timeout_secs=1)
        async with port.stream("g", member) as lines:
            await lines.assignment(0, 1, 2, 3)
            request = LeaveGroupRequest(group_id="g", member_id=member, members=[MemberIdentity(member_id=member)])
            coordinators = Coordinators(bridge_of(port).bridge._cluster)
            await coordinators.ask("g", LEAVE_GROUP, request, lambda response: int(response.error_code))
            assert (await lines.control("closed"))["code"] == "UNKNOWN_MEMBER_ID"
        assert (await port.post(f"/g/members/{member}/heartbeat")).status == 404
        commit = {"partition_id": 0, "offset": 1, "member_id": member, "generation": 1}
        assert (await port.post("/g/offsets/commit", commit)).status == 404
        assert bridge_of(port).bridge._groups.member_count == 0
        assert port.watcher_count == 0


@over_clusters
@in_uvloop
async def test_members_of_two_bridges_share_a_group(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A bridge learns from its next heartbeat that a member of the other one has joined or left.
    monkeypatch.setattr(group_member, "HEARTBEAT_SECONDS_MAX", 0.1)
    directory: Path = tmp_path_factory.mktemp("second")
    assert engine.upstream is not None
    async with (
        port_over(engine) as one,
        running_bridge(directory, engine.upstream) as bridge,
        ClientSession(f"http://{HOST}:{bridge.http.port}") as session,
    ):
        two = BridgePort(engine, bridge, session)
        for port in (one, two):
            await port.create("g", "t", 4)
        first, second = await one.join("g"), await two.join("g")
        shares = await assigned((one, first), (two, second))
        assert [len(share) for share in shares] == [2, 2]
        stats = (await one.get("/g/stats")).body
        assert (stats["state"], stats["member_count"]) == ("Stable", 2)
        # The generation in which `first` had all partitions, or none, does not count any more.
        mine = {"partition_id": shares[0][0], "member_id": first}
        outdated = {**mine, "offset": 7, "generation": stats["generation"] - 1}
        refused = await one.post("/g/offsets/commit", outdated)
        assert (refused.status, refused.body["error"]["code"]) == (409, "STALE_MEMBER_EPOCH")
        assert (await one.post("/g/offsets/commit", {**mine, "offset": 5})).status == 200
        assert await two.committed("g", shares[0][0]) == 5
        await one.ask("DELETE", f"/g/members/{first}/leave")
        assert await assigned((two, second)) == [[0, 1, 2, 3]]
        refused = await one.post("/g/offsets/commit", {"partition_id": 0, "offset": 9})
        assert (refused.status, refused.body["error"]["code"]) == (409, "INCONSISTENT_GROUP_PROTOCOL")
        assert await two.committed("g", shares[0][0]) == 5
        await two.ask("DELETE", f"/g/members/{second}/leave")
        assert (await one.post("/g/offsets/commit", {"partition_id": 0, "offset": 9})).status == 200


@over_clusters
@in_uvloop
async def test_a_member_without_partitions_cannot_commit_and_keeps_its_group_from_deletion(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has its id, and the cluster never assigns anything to it.
    monkeypatch.setattr(group_member.GroupMember, "start", lambda member: None)
    async with port_over(engine) as port:
        await port.create("g", "t", 4)
        member = await port.join("g")
        for generation in (None, 0):
            commit = {"partition_id": 0, "offset": 1, "member_id": member, "generation": generation}
            refused = await port.post("/g/offsets/commit", commit)
            assert (refused.status, refused.body["error"]["code"]) == (409, "REBALANCE_IN_PROGRESS")
        refused = await port.ask("DELETE", "/g")
        assert (refused.status, refused.body["error"]["code"]) == (409, "NON_EMPTY_GROUP")
        assert (await port.ask("DELETE", f"/g/members/{member}/leave")).status == 200
        assert (await port.ask("DELETE", "/g")).status == 200


@over_clusters
@in_uvloop
async def test_the_number_of_members_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_groups, "MEMBERS_MAX", 2)
    async with port_over(engine) as port:
        await port.create("g", "t", 4)
        told = await asyncio.gather(*(port.post("/g/join", {}) for _ in range(4)))
        assert sorted(one.status for one in told) == [200, 200, 429, 429]
        members = [one.body["member_id"] for one in told if one.status == 200]
        await port.ask("DELETE", f"/g/members/{members[0]}/leave")
        assert (await port.post("/g/join", {})).status == 200


@over_clusters
@in_uvloop
async def test_a_partition_that_the_bridge_does_not_know_yet_is_asked_for(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 4)
        await assigned((port, await port.join("g")))
        topic = await port.find("t")
        assert topic is not None
        topic.partition_count = 2  # type: ignore[misc]
        assert await port.committed("g", 3) is None
        assert topic.partition_count == 4
        refused = await port.get("/g/offsets/4")
        assert (refused.status, refused.body["error"]["code"]) == (404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)
