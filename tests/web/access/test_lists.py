"""Lists have pages of what the client may describe, and nothing in a page names anything else."""

import asyncio

import pytest

from kwire.access.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import Principal
from tests.support.engines import Engine, if_served
from tests.support.http_access import ADMIN, BOB, AccessHttp, access_http
from tests.support.node import in_uvloop

JOIN_SECONDS = 30.0
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


async def allow_prefix(http: AccessHttp, kind: ResourceType, prefix: str) -> None:
    bob = Principal("User", "bob")
    acl = Acl(kind, prefix, PatternType.PREFIXED, bob, WILDCARD, Operation.DESCRIBE, Permission.ALLOW)
    await http.acls.add([acl])


async def pages(http: AccessHttp, path: str, limit: int, field: str, name: str) -> list[list[str]]:
    found: list[list[str]] = []
    after = ""
    while True:
        answer = await http.get(f"{path}?limit={limit}" + (f"&after={after}" if after else ""), Authorization=BOB)
        assert answer.status == 200
        assert b"hidden" not in answer.body
        found.append([one[name] for one in answer.json[field]])
        if answer.json["next"] is None:
            return found
        assert len(found[-1]) == limit
        after = answer.json["next"]


@pytest.mark.parametrize("chunk", [1, 2, 200])
@in_uvloop
async def test_pages_of_rooms(engine: Engine, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("kwire.web.rooms.rooms.ROOMS_PER_CHUNK", chunk)
    monkeypatch.setattr("kwire.web.proxy.metadata.CHECKS_PER_CHUNK", chunk)
    async with access_http(engine) as http:
        names = [f"{prefix}-{number}" for number in range(5) for prefix in ("a-hidden", "b-seen", "c-hidden", "d-seen")]
        for name in names:
            await http.put(f"/rooms/{name}", {}, Authorization=ADMIN)
        await allow_prefix(http, TOPIC, "b-seen")
        await allow_prefix(http, TOPIC, "d-seen")
        seen = sorted(name for name in names if "seen" in name)
        for limit in (1, 3, 5, 10, 11):
            found = await pages(http, "/rooms", limit, "rooms", "room")
            assert [name for page in found for name in page] == seen, limit
        answer = await http.get("/rooms", Authorization=BOB)
        assert answer.json["room_count"] is None
        assert (await http.get("/rooms", Authorization=ADMIN)).json["room_count"] == len(names)
        assert (await http.get("/topics", Authorization=BOB)).json == seen
        assert (await http.get("/topics?limit=3&after=b-seen-1", Authorization=BOB)).json == seen[2:5]


@if_served("/consumer-groups/{group}")
@in_uvloop
async def test_pages_of_groups(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.web.groups.consumer_groups.GROUPS_PER_CHUNK", 2)
    async with access_http(engine) as http:
        await http.post("/topics/t", {"num_partitions": 1}, Authorization=ADMIN)
        names = [f"{prefix}-{number}" for number in range(3) for prefix in ("a-hidden", "b-seen", "c-hidden")]
        for name in names:
            await http.post(f"/consumer-groups/{name}", {"topic": "t"}, Authorization=ADMIN)
        await allow_prefix(http, GROUP, "b-seen")
        for limit in (1, 2, 3, 4):
            found = await pages(http, "/consumer-groups", limit, "groups", "group_id")
            assert [name for page in found for name in page] == ["b-seen-0", "b-seen-1", "b-seen-2"], limit


@if_served("/consumer-groups/{group}")
@in_uvloop
async def test_a_group_is_described_without_topics_that_may_not_be_described(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.post("/topics/secret", {"num_partitions": 1}, Authorization=ADMIN)
        await http.post("/consumer-groups/g", {"topic": "secret"}, Authorization=ADMIN)
        await http.post("/consumer-groups/g/join", {}, Authorization=ADMIN)
        commit = {"partition_id": 0, "offset": 0}
        async with asyncio.timeout(JOIN_SECONDS):
            # A cluster gives the member its partition a moment after it has joined.
            while (await http.post("/consumer-groups/g/offsets/commit", commit, Authorization=ADMIN)).status != 200:
                await asyncio.sleep(0.05)
        whole = (await http.get("/api/v1/groups/g", Authorization=ADMIN)).body
        assert b"secret" in whole
        await http.allow((Operation.DESCRIBE, GROUP, "g"))
        answer = await http.get("/api/v1/groups/g", Authorization=BOB)
        assert answer.status == 200
        assert b"secret" not in answer.body
        assert answer.json["offsets"] == []


@in_uvloop
async def test_settings_of_a_topic_need_the_right_to_describe_them(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.post("/topics/t", {"num_partitions": 1}, Authorization=ADMIN)
        await http.allow((Operation.DESCRIBE, TOPIC, "t"))
        assert (await http.get("/topics/t", Authorization=BOB)).json["configs"] == {}
        await http.allow((Operation.DESCRIBE_CONFIGS, TOPIC, "t"))
        assert "retention.ms" in (await http.get("/topics/t", Authorization=BOB)).json["configs"]
