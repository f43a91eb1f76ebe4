"""Consumer groups over HTTP: the shapes of the source text, and what is refused."""

import asyncio
import uuid

import pytest

from tests.support.engines import Engine, only_embedded
from tests.support.node import in_uvloop
from tests.web.groups.engine_port import port_over
from tests.web.groups.groups_port import Port

# No rebalance takes longer, however busy the machine is.
SETTLE_TIMEOUT_S = 30.0
SETTLE_PAUSE_S = 0.01


async def assigned(port: Port, group: str, *members: str) -> list[list[int]]:
    """What each has once everybody has let go and taken, and all partitions are assigned."""
    partition_count = (await port.get(f"/{group}/stats")).body["partition_count"]
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while True:
            found = [(await port.get(f"/{group}/members/{member}/assignment")).body for member in members]
            shares = [one["partitions"] for one in found]
            if {one["state"] for one in found} == {"stable"} and sum(map(len, shares)) == partition_count:
                return shares
            await asyncio.sleep(SETTLE_PAUSE_S)


@pytest.mark.proves("S0-69", "S0-70")
@in_uvloop
async def test_a_group_is_created(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create_topic("orders", 3)
        asked = {"topic": "orders", "partition_count": 3, "strategy": "sticky", "session_timeout_secs": 30}
        told = await port.post("/order-processors", asked)
        assert told.status == 201
        assert told.body == {
            "success": True,
            "group_id": "order-processors",
            "topic": "orders",
            "strategy": "sticky",
            "session_timeout_secs": 30,
        }
        assert (await port.post("/order-processors", asked)).status == 200
        told = await port.post("/order-processors", {"topic": "orders", "strategy": "range"})
        assert (told.status, told.body["error"]["code"]) == (409, "DUPLICATE_RESOURCE")
        # C-31
        told = await port.post("/other", {"topic": "orders", "partition_count": 4})
        assert (told.status, told.body["error"]["code"]) == (409, "DUPLICATE_RESOURCE")
        listed = await port.get("?limit=1")
        assert [one["group_id"] for one in listed.body["groups"]] == ["order-processors"]
        assert listed.body["next"] is None


@pytest.mark.proves("S0-71", "S0-72", "S0-73")
@pytest.mark.parametrize(
    ("strategy", "shares"),
    [("round_robin", [[0, 3], [1, 4], [2, 5]]), ("range", [[0, 1], [2, 3], [4, 5]]), ("sticky", None)],
)
@in_uvloop
async def test_three_members_share_six_partitions_by_the_strategy(
    strategy: str, shares: list[list[int]] | None, engine: Engine
) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", strategy=strategy)
        members = sorted([await port.join("g") for _ in range(3)])
        found = await assigned(port, "g", *members)
        if shares is not None:
            assert found == shares
        assert [len(one) for one in found] == [2, 2, 2]
        assert sorted(one for share in found for one in share) == [0, 1, 2, 3, 4, 5]
        if strategy == "sticky":
            await port.ask("DELETE", f"/g/members/{members[0]}/leave")
            after = await assigned(port, "g", *members[1:])
            assert all(set(before) < set(now) for before, now in zip(found[1:], after, strict=True))


@pytest.mark.proves("S0-74", "S0-75", "S0-76", "S0-79")
@in_uvloop
async def test_a_member_joins_asks_beats_and_leaves(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 3)
        told = await port.post("/g/join", {"session_timeout_secs": 30})
        assert told.status == 200
        member = told.body["member_id"]
        # The coordinator of a cluster chooses the id, and puts the name of the client before it.
        unique = member if engine.upstream is None else member.removeprefix("kwire-")
        assert str(uuid.UUID(unique)) == unique
        assert told.body["group_id"] == "g"
        await assigned(port, "g", member)
        told = await port.get(f"/g/members/{member}/assignment")
        generation = 2 if engine.upstream is None else 1
        expected = {
            "member_id": member,
            "group_id": "g",
            "partitions": [0, 1, 2],
            "generation": generation,
            "state": "stable",
        }
        assert told == (200, expected)
        told = await port.post(f"/g/members/{member}/heartbeat")
        assert told == (200, {"success": True, "generation": generation, "state": "stable"})
        told = await port.ask("DELETE", f"/g/members/{member}/leave")
        assert told == (200, {"success": True, "member_id": member})
        for method, path in (("GET", "assignment"), ("POST", "heartbeat"), ("DELETE", "leave"), ("GET", "stream")):
            told = await port.ask(method, f"/g/members/{member}/{path}")
            assert (told.status, told.body["error"]["code"]) == (404, "UNKNOWN_MEMBER_ID")


@pytest.mark.proves("S0-77", "S0-78", "S0-82")
@in_uvloop
async def test_an_offset_is_committed_and_read_back(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 2)
        assert await port.get("/g/offsets/0") == (200, {"group_id": "g", "partition_id": 0, "offset": None})
        told = await port.post("/g/offsets/commit", {"partition_id": 0, "offset": 1500})
        assert told == (200, {"success": True, "partition_id": 0, "offset": 1500})
        assert await port.get("/g/offsets/0") == (200, {"group_id": "g", "partition_id": 0, "offset": 1500})
        member = await port.join("g")
        await assigned(port, "g", member)
        generation = (await port.get(f"/g/members/{member}/assignment")).body["generation"]
        mine = {"partition_id": 0, "member_id": member, "generation": generation}
        assert (await port.post("/g/offsets/commit", {**mine, "offset": 1501})).status == 200
        # C-30: who was put out, or does not know of the newest change, is fenced.
        told = await port.post("/g/offsets/commit", {**mine, "offset": 1, "generation": generation + 1})
        assert (told.status, told.body["error"]["code"]) == (409, "STALE_MEMBER_EPOCH")
        told = await port.post("/g/offsets/commit", {**mine, "offset": 1, "member_id": "gone"})
        assert (told.status, told.body["error"]["code"]) == (404, "UNKNOWN_MEMBER_ID")
        assert await port.committed("g", 0) == 1501


@pytest.mark.proves("S0-80", "S0-81", "S0-92")
@in_uvloop
async def test_partitions_are_shared_anew_when_members_join_and_leave(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", strategy="range")
        one, two = await port.join("g"), await port.join("g")
        told = await port.get(f"/g/members/{two}/assignment")
        # Members of a cluster's group may have joined together.
        if engine.upstream is None:
            assert (told.body["partitions"], told.body["state"]) == ([], "rebalancing")
        assert [len(share) for share in await assigned(port, "g", one, two)] == [3, 3]
        three = await port.join("g")
        assert [len(share) for share in await assigned(port, "g", one, two, three)] == [2, 2, 2]
        assert (await port.ask("DELETE", f"/g/members/{two}/leave")).status == 200
        assert [len(share) for share in await assigned(port, "g", one, three)] == [3, 3]


@pytest.mark.proves("S0-84")
@only_embedded("the numbers of generations and the clock are the server's")
@in_uvloop
async def test_stats_tell_how_a_group_stands(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 3)
        empty = {
            "group_id": "g",
            "topic": "t",
            "state": "Empty",
            "member_count": 0,
            "generation": 1,
            "partition_count": 3,
            "committed_partitions": 0,
            "last_rebalance_secs": None,
        }
        assert await port.get("/g/stats") == (200, empty)
        await port.join("g")
        await port.post("/g/offsets/commit", {"partition_id": 1, "offset": 4})
        port.node.clock.advance(120_000)
        stable = {
            **empty,
            "state": "Stable",
            "member_count": 1,
            "generation": 2,
            "committed_partitions": 1,
            "last_rebalance_secs": 120,
        }
        assert await port.get("/g/stats") == (200, stable)
        await port.join("g")
        assert (await port.get("/g/stats")).body["state"] == "Reconciling"


@pytest.mark.proves("S0-84")
@in_uvloop
async def test_stats_of_a_group_that_has_members(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 3)
        stats = (await port.get("/g/stats")).body
        assert (stats["state"], stats["member_count"], stats["committed_partitions"]) == ("Empty", 0, 0)
        assert stats["last_rebalance_secs"] is None
        await assigned(port, "g", await port.join("g"))
        # This commit names no member, although the group has one.
        assert (await port.post("/g/offsets/commit", {"partition_id": 1, "offset": 4})).status == 200
        stats = (await port.get("/g/stats")).body
        assert (stats["state"], stats["member_count"], stats["committed_partitions"]) == ("Stable", 1, 1)
        assert stats["generation"] > 0
        assert 0 <= stats["last_rebalance_secs"] < SETTLE_TIMEOUT_S


@in_uvloop
async def test_a_group_is_deleted_when_it_is_empty(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t")
        member = await port.join("g")
        told = await port.ask("DELETE", "/g")
        assert (told.status, told.body["error"]["code"]) == (409, "NON_EMPTY_GROUP")
        await port.ask("DELETE", f"/g/members/{member}/leave")
        assert await port.ask("DELETE", "/g") == (200, {"success": True, "group_id": "g"})
        assert (await port.ask("DELETE", "/g")).status == 404


@in_uvloop
async def test_names_in_paths_are_percent_decoded(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create_topic("t", 1)
        assert (await port.post("/caf%C3%A9%20%2F%20bar", {"topic": "t"})).body["group_id"] == "café / bar"
        assert (await port.get("/caf%C3%A9%20%2F%20bar/stats")).body["group_id"] == "café / bar"


BAD = [
    ("POST", "/g", {}, 400),
    ("POST", "/g", {"topic": 1}, 400),
    ("POST", "/g", {"topic": "t", "strategy": "lucky"}, 400),
    ("POST", "/g", {"topic": "t", "session_timeout_secs": 0}, 400),
    ("POST", "/g", {"topic": "t", "session_timeout_secs": 1801}, 400),
    ("POST", "/g", {"topic": "t", "session_timeout_secs": "soon"}, 400),
    ("POST", "/g", {"topic": "t", "partition_count": -1}, 400),
    ("POST", "/g", {"topic": "t", "surprise": 1}, 400),
    ("POST", "/g", {"topic": "nowhere"}, 404),
    ("POST", "/g", {"topic": "__consumer_offsets"}, 400),
    ("POST", "/__g", {"topic": "t"}, 400),
    ("POST", "/" + "g" * 250, {"topic": "t"}, 400),
    ("POST", "/g", b"{", 400),
    ("POST", "/g", b"", 400),
    ("POST", "/unknown/join", {}, 404),
    ("GET", "/unknown/stats", None, 404),
    ("GET", "/unknown/offsets/0", None, 404),
    ("GET", "/unknown/members/m/stream", None, 404),
    ("POST", "/unknown/offsets/commit", {"partition_id": 0, "offset": 0}, 404),
    ("POST", "/known/join", {"session_timeout_secs": -1}, 400),
    ("POST", "/known/join", b"[", 400),
    ("POST", "/known/offsets/commit", {"partition_id": 0}, 400),
    ("POST", "/known/offsets/commit", {"partition_id": -1, "offset": 0}, 400),
    ("POST", "/known/offsets/commit", {"partition_id": 0, "offset": -1}, 400),
    ("POST", "/known/offsets/commit", {"partition_id": 0, "offset": 2**63}, 400),
    ("POST", "/known/offsets/commit", {"partition_id": 9, "offset": 0}, 404),
    ("POST", "/known/offsets/commit", b'{"partition_id": 0, "offset": 0, "member_id": "\\ud800"}', 400),
    ("POST", "/g", b'{"topic": "\\ud800"}', 400),
    ("POST", "/known/offsets/commit", b'{"partition_id": 0, "offset": 0, "member_id": "\\u0000"}', 404),
    ("POST", "/known/offsets/commit", {"partition_id": 0, "offset": 0, "generation": -1}, 400),
    ("GET", "/known/offsets/9", None, 404),
    ("GET", "/known/offsets/-1", None, 400),
    ("GET", "/known/offsets/x", None, 400),
    ("GET", "/known/offsets/" + "9" * 30, None, 400),
    ("GET", "?limit=0", None, 400),
    ("GET", "/known/members/nobody/stream?limit=0", None, 400),
    ("GET", "/known/members/nobody/stream?limit=many", None, 400),
    ("GET", "/known/members/nobody/stream?surprise=1", None, 400),
    ("GET", "/known/members/nobody/stream", None, 404),
]


@in_uvloop
async def test_bad_input_is_refused_with_a_code_and_a_sentence(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("known", "t", 1)
        for method, path, body, status in BAD:
            told = await port.ask(method, path, body)
            assert told.status == status, (method, path, body, told)
            assert told.body["error"]["code"], told
            assert len(told.body["error"]["message"]) > 5, told


@pytest.mark.proves("S0-89")
@in_uvloop
async def test_groups_can_be_switched_off(engine: Engine) -> None:
    async with port_over(engine, "kwire.rest.groups.enable=false") as port:
        for method, path in (("POST", "/g"), ("GET", ""), ("GET", "/g/stats"), ("GET", "/g/members/m/stream")):
            told = await port.ask(method, path)
            assert (told.status, told.body["error"]["code"]) == (403, "GroupsDisabled")
