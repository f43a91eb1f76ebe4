"""The audit log over HTTP: clients read it, and cannot write, change or delete it; changes name the client."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.http import Http, http_node
from tests.support.node import in_uvloop

SETTINGS = ("kwire.audit=all",)


async def entries_of(http: Http, event_type: str) -> list[dict[str, Any]]:
    answer = await http.get("/rooms/kwire-audit/events?limit=1000")
    if answer.status == 404:
        return []
    return [event["data"] for event in answer.json["events"] if event["type"] == event_type]


async def recorded(http: Http, event_type: str, name: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            for entry in await entries_of(http, event_type):
                if entry["resource"]["name"] == name:
                    return entry
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("exists", [True, False])
@in_uvloop
async def test_clients_cannot_write_change_or_delete_the_audit_log(tmp_path: Path, exists: bool) -> None:
    async with http_node(tmp_path, *(SETTINGS if exists else ("kwire.audit=none",))) as http:
        if exists:
            await http.put("/rooms/lobby", {})
            await recorded(http, "topic.created", "lobby")
        event = {"event_type": "x", "data": {}}
        lines = b'{"event_type":"x","data":{}}\n'
        proxied = b'{"records":[{"value":"eA=="}]}'
        binary = "application/vnd.kafka.binary.v2+json"
        tries = [
            await http.post("/rooms/kwire-audit/events", event),
            await http.post("/rooms/kwire-audit/events", [event, event]),
            await http.put("/rooms/kwire-audit", {}),
            await http.put("/rooms/kwire-audit", {"max_events": 1}),
            await http.ask("DELETE", "/rooms/kwire-audit"),
            await http.post("/topics/kwire-audit", {}),
            await http.ask("POST", "/topics/kwire-audit", proxied, Content_Type=binary),
        ]
        if exists:
            tries += [
                await http.post("/topics/kwire-audit/publish", event),
                await http.post("/topics/kwire-audit/publish", [event, event]),
                await http.put("/topics/kwire-audit/partitions", {"num_partitions": 2}),
                await http.ask("DELETE", "/topics/kwire-audit"),
                await http.ask("POST", "/topics/kwire-audit/partitions/0", proxied, Content_Type=binary),
            ]
        assert [(one.status, one.body) for one in tries if one.status != 403] == []
        streamed = await http.ask("POST", "/rooms/kwire-audit/events", lines, Content_Type="application/x-ndjson")
        assert streamed.status == 403 or b"TOPIC_AUTHORIZATION_FAILED" in streamed.body
        topics = (await http.get("/topics")).json
        assert ("kwire-audit" in str(topics)) is exists


@in_uvloop
async def test_changes_over_http_name_the_client_and_what_changed(tmp_path: Path) -> None:
    async with http_node(tmp_path, *SETTINGS) as http:
        assert (await http.post("/topics/orders", {"num_partitions": 2})).status == 201
        made = await recorded(http, "topic.created", "orders")
        assert (made["principal"], made["host"], made["port"]) == ("User:ANONYMOUS", "127.0.0.1", "http")
        assert made["partitions"] == 2
        await http.put("/topics/orders/partitions", {"num_partitions": 3})
        assert (await recorded(http, "topic.extended", "orders"))["partitions"] == 3
        schema = {"eventType": "made", "type": "object"}
        await http.post("/topics", {"name": "events", "schemas": [schema]})
        await http.put("/topics/events/schemas", {"schemas": [schema, {"eventType": "x", "type": "object"}]})
        assert (await recorded(http, "schemas.changed", "events"))["port"] == "http"
        await http.ask("DELETE", "/topics/orders")
        await recorded(http, "topic.deleted", "orders")
        # What the server does by itself is not by the client of whatever request came last.
        assert (await recorded(http, "topic.created", "kwire-audit"))["principal"] == "Server:kwire"


@in_uvloop
async def test_rooms_that_a_websocket_creates_name_the_client(tmp_path: Path) -> None:
    async with http_node(tmp_path, *SETTINGS) as http, http.session.ws_connect(f"{http.url}/ws") as socket:
        for room, command in (
            ("followed", {"command": "stream.subscribe", "payload": {"room": "followed"}}),
            (
                "published",
                {"command": "stream.publish", "payload": {"room": "published", "event_type": "x", "data": {}}},
            ),
        ):
            await socket.send_json({"request_id": room, **command})
            made = await recorded(http, "topic.created", room)
            assert (made["principal"], made["host"], made["port"]) == ("User:ANONYMOUS", "127.0.0.1", "http")


@in_uvloop
async def test_only_webhooks_are_recorded_without_access_control(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.post("/topics/orders", {})
        await http.ask("DELETE", "/topics/orders")
        metrics = (await http.get("/metrics")).body.decode()
        assert "kwire_audit_entries_total 0.0" in metrics
        assert "kwire_audit_dropped_total 0.0" in metrics
