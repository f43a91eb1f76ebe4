"""The fetcher: the order of deliveries and requests, and the logs that it knows."""

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


@in_uvloop
async def test_a_log_that_is_added_when_the_last_one_was_removed_is_fetched(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            await Admin(logs.cluster).create_topic("orders", 1)
            log = await logs.open("orders")
            log.watch(lambda _: None)
            await until(lambda: logs.followers.is_fetching(log))
            [fetcher] = logs.followers._fetchers.values()
            task = fetcher._task
            assert task is not None
            fetcher.remove(log)
            # This coroutine runs in the iteration in which the task ends, or in the next one before its callbacks.
            while not task.done():
                await asyncio.sleep(0)
            assert fetcher._task is task, "the task has ended, and the fetcher does not know yet"
            fetcher.add(log, -1)
            Appends().send(log, b"event", at_ms=NOW_MS)
            await until(lambda: log.position == 1)
            await logs.close()


@in_uvloop
async def test_the_fetcher_forgets_topics_that_are_not_followed_any_more(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            await Admin(logs.cluster).create_topic("orders", 2)
            await Admin(logs.cluster).create_topic("parcels", 1)
            first, second, other = [
                await logs.open("orders", 0),
                await logs.open("orders", 1),
                await logs.open("parcels", 0),
            ]

            def ignore(_: StreamLog) -> None:
                """A watcher."""

            for log in (first, second, other):
                log.watch(ignore)
            await until(lambda: all(logs.followers.is_fetching(log) for log in (first, second, other)))
            [fetcher] = logs.followers._fetchers.values()
            for log in (first, other):
                log.unwatch(ignore)
            assert {name for name, _ in fetcher._answered_logs} == {"orders", second.topic_id}
            Appends().send(second, b"event", at_ms=NOW_MS)
            await until(lambda: second.position == 1)
            await logs.close()
