"""GET /rooms/{room}/subscribers, and the counts in the list of rooms."""

from pathlib import Path

from kwire.access.acl import Operation, ResourceType
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, BOB, access_node
from tests.support.node import in_uvloop

EVENT = {"event_type": "message", "data": 1}


@in_uvloop
async def test_subscribers_are_listed_with_their_progress(engine: Engine) -> None:
    async with engine.http() as http:
        for _ in range(3):
            await http.post("/rooms/r/events", EVENT)
        url = f"{http.url}/rooms/r/subscribe"
        async with (
            http.session.get(f"{url}?from_offset=0&types=message", headers={"Accept": "text/event-stream"}) as stream,
            http.session.get(f"{url}?on_lag=drop") as lines,
            http.session.ws_connect(url) as socket,
        ):
            await stream.content.readuntil(b"caught_up")
            await lines.content.readuntil(b"caught_up")
            while '"caught_up"' not in await socket.receive_str(timeout=10):
                pass
            answer = (await http.get("/rooms/r/subscribers")).json
            assert answer["subscriber_count"] == 3
            first, second, third = answer["subscribers"]
            assert [one["protocol"] for one in (first, second, third)] == ["sse", "ndjson", "websocket"]
            assert (first["state"], first["next_offset"], first["lag"]) == ("live", 3, 0)
            assert (first["types"], second["types"], second["on_lag"]) == (["message"], None, "drop")
            assert first["principal"] == "User:ANONYMOUS"
            assert first["subscribed_at"].endswith("Z")
            assert len((await http.get("/rooms/r/subscribers?limit=2")).json["subscribers"]) == 2
        assert (await http.get("/rooms/nowhere/subscribers")).status == 404
        assert (await http.get("/rooms/r/subscribers?limit=0")).status == 400


@in_uvloop
async def test_principals_are_shown_to_clients_that_may_describe_the_cluster(tmp_path: Path) -> None:
    async with access_node(tmp_path) as http:
        await http.post("/rooms/r/events", EVENT, Authorization=ADMIN)
        await http.allow((Operation.DESCRIBE, ResourceType.TOPIC, "r"))
        async with http.session.get(f"{http.url}/rooms/r/subscribe", headers={"Authorization": ADMIN}) as stream:
            await stream.content.readuntil(b"caught_up")
            for credentials, principal in ((ADMIN, "User:admin"), (BOB, None)):
                (one,) = (await http.get("/rooms/r/subscribers", Authorization=credentials)).json["subscribers"]
                assert one["principal"] == principal


@in_uvloop
async def test_the_list_of_rooms_has_counts_of_rooms_in_use(engine: Engine) -> None:
    async with engine.http() as http:
        await http.put("/rooms/empty")
        for _ in range(2):
            await http.post("/rooms/used/events", EVENT)
        used = (await http.get("/rooms/used")).json
        listed = {one["room"]: one for one in (await http.get("/rooms")).json["rooms"]}
        for name in ("event_count", "newest_offset", "last_event_at"):
            assert listed["used"][name] == used[name]
        assert used["event_count"] == 2
    async with engine.http() as http:
        (room,) = (await http.get("/rooms?prefix=used")).json["rooms"]
        assert (room["event_count"], room["newest_offset"], room["last_event_at"]) == (None, None, None)
