"""The order in which the fetcher delivers new events and asks for more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kwire.kafka_client.admin import Admin
from kwire.kafka_client.connection import Connection
from kwire.streams.log import StreamLog
from kwire.wire.messages.fetch import FETCH
from kwire.wire.schema import Api
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs, until
from tests.support.stream_worlds import NOW_MS, Appends


@in_uvloop
async def test_new_events_are_delivered_before_the_next_fetch_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    send = Connection.send

    def note_fetches(connection: Connection, api: Api, message: Any, **options: Any) -> "asyncio.Future[Any]":
        if api is FETCH:
            steps.append("fetch")
        return send(connection, api, message, **options)

    def arrived(_: StreamLog) -> None:
        steps.append("arrived")
        # As the delivery to subscribers does it.
        asyncio.get_running_loop().call_soon(steps.append, "delivered")

    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            await Admin(logs.cluster).create_topic("orders", 1)
            log = await logs.open("orders")
            await log.ready()
            log.watch(arrived)
            await until(lambda: logs.followers.is_fetching(log))
            monkeypatch.setattr(Connection, "send", note_fetches)
            Appends().send(log, b"event", at_ms=NOW_MS)
            await until(lambda: "delivered" in steps)
            assert steps[steps.index("arrived") :][:2] == ["arrived", "delivered"]
            await logs.close()
