"""Kills of brokers and of the bridge under load: SSE and WebSocket subscribers resume without a gap or a repetition.

`scripts/bench bridge` measures the time without service, with kwire's own client.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.settings import ClientSettings, addresses_of
from tests.support.apache_cluster import NODE_IDS, ApacheCluster, on_apache
from tests.support.bridge_process import BridgeProcess
from tests.support.clients import read_values
from tests.support.engines import delete_all_topics
from tests.support.history import (
    Acknowledged,
    Begun,
    EndAsked,
    Ended,
    FinalLog,
    History,
    Isolation,
    Outcome,
    Passed,
    Place,
    Read,
    ReaderStarted,
    Sent,
)
from tests.support.history_anomalies import report
from tests.support.history_checks import anomalies_in
from tests.support.node import in_loop

ROOM = "killed"
PLACE = Place(ROOM, 0)
WRITERS = 4
# Events that every subscriber receives between two kills.
STEADY_EVENTS = 40
# A killed broker is replaced after 9 seconds. The bridge gives an append up after 30 seconds.
WAIT_S = 90.0
RETRY_S = 0.05
NEVER_S = 1e9


class Load:
    """Writers and subscribers of one room, and their history."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.history = History()
        self.acknowledged_count = 0
        self.unknown_count = 0
        self.is_over = False

    async def write(self, writer: int, session: aiohttp.ClientSession) -> None:
        """Publish events one after another. An event without an answer is not sent again."""
        number = 0
        while not self.is_over:
            value, number = f"{writer}-{number}", number + 1
            # To the checker, each event is a transaction of its own.
            self.history.note_all(
                (
                    Begun(transaction=value, transactional_id=value, incarnation=1, timeout_s=NEVER_S),
                    Sent(transaction=value, place=PLACE, value=value),
                    EndAsked(transaction=value, is_commit=True),
                )
            )
            offset = await self._publish(session, value)
            if offset is None:
                self.unknown_count += 1
                self.history.note(Ended(transaction=value, outcome=Outcome.UNKNOWN))
                await asyncio.sleep(RETRY_S)
                continue
            self.acknowledged_count += 1
            self.history.note_all(
                (
                    Acknowledged(place=PLACE, value=value, offset=offset),
                    Ended(transaction=value, outcome=Outcome.COMMITTED),
                )
            )

    async def _publish(self, session: aiohttp.ClientSession, value: str) -> int | None:
        try:
            event = {"event_type": "n", "data": value}
            async with session.post(f"{self.url}/rooms/{ROOM}/events", json=event) as answer:
                if answer.status != 201:
                    return None
                offset: int = (await answer.json())["offset"]
                return offset
        except aiohttp.ClientError:
            return None


class Subscriber(ABC):
    """Reads from the first event on. When the connection is lost, it resumes after the last event that it has."""

    kind: str

    def __init__(self, load: Load) -> None:
        self.load = load
        self.next_offset = 0
        self.connections = 0
        self.controls: list[dict[str, Any]] = []

    async def run(self) -> None:
        while True:
            reader, self.connections = f"{self.kind}-{self.connections}", self.connections + 1
            self.load.history.note(ReaderStarted(reader=reader, place=PLACE, position=self.next_offset))
            try:
                async for message in self.messages():
                    self._take(reader, message)
            except (aiohttp.ClientError, OSError, WebSocketException):
                pass  # The bridge is down, or has refused.
            self.load.history.note(Passed(reader=reader, place=PLACE, position=self.next_offset))
            await asyncio.sleep(RETRY_S)

    @abstractmethod
    def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Subscribe from `next_offset`, and generate what the bridge sends until the connection ends."""

    def _take(self, reader: str, message: dict[str, Any]) -> None:
        if "offset" in message and "data" in message:
            offset, value = message["offset"], str(message["data"])
            self.load.history.note(Read(reader=reader, place=PLACE, offset=offset, value=value))
            self.next_offset = offset + 1
        else:
            self.controls.append(message)


class SentEvents(Subscriber):
    """Server-Sent Events: it resumes with Last-Event-ID, as browsers do."""

    kind = "sse"

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream"}
        if self.next_offset:
            headers["Last-Event-ID"] = str(self.next_offset - 1)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=WAIT_S)
        url = f"{self.load.url}/rooms/{ROOM}/subscribe?from_offset=0"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, timeout=timeout) as answer:
            async for line in answer.content:
                if line.startswith(b"data:"):
                    yield json.loads(line.removeprefix(b"data:"))


class Socket(Subscriber):
    """A WebSocket: it resumes with `from_offset`."""

    kind = "websocket"

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        url = self.load.url.replace("http:", "ws:")
        async with connect(f"{url}/rooms/{ROOM}/subscribe?from_offset={self.next_offset}") as socket:
            async for text in socket:
                yield json.loads(text)


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_S:.0f} s: {what}") from None


@asynccontextmanager
async def running_load(url: str) -> AsyncIterator[tuple[Load, list[Subscriber]]]:
    """In the end the writers are done; the subscribers still read."""
    load = Load(url)
    subscribers: list[Subscriber] = [SentEvents(load), Socket(load)]
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        tasks = [asyncio.create_task(one.run()) for one in subscribers]
        writers = [asyncio.create_task(load.write(number, session)) for number in range(WRITERS)]
        try:
            yield load, subscribers
        finally:
            for task in (*tasks, *writers):
                task.cancel()
            found = await asyncio.gather(*tasks, *writers, return_exceptions=True)
        failed = [one for one in found if isinstance(one, Exception)]
        assert not failed, failed


async def leader_of(cluster: Cluster) -> int:
    await cluster.refresh([ROOM])
    return cluster.metadata.leader(ROOM, 0).node


async def kill_node(kafka: ApacheCluster, cluster: Cluster, *, is_leader: bool) -> Callable[[], None]:
    """Kill a broker, and wait until the room has a leader that is alive. Returns what starts the broker again."""
    leader = await leader_of(cluster)
    node = leader if is_leader else next(one for one in NODE_IDS if one != leader)
    await asyncio.to_thread(kafka.kill, node)
    async with asyncio.timeout(WAIT_S):
        while await leader_of(cluster) in (node, -1):
            await asyncio.sleep(0.05)
    return lambda: kafka.restart(node)


@on_apache
@pytest.mark.timeout(600)
@in_loop
async def test_subscribers_resume_after_kills_of_brokers_and_of_the_bridge(
    apache_kafka: ApacheCluster, tmp_path: Path
) -> None:
    bridge = BridgeProcess(tmp_path / "bridge", apache_kafka.bootstrap)
    bridge.start()
    bridge.ready()
    cluster = Cluster(ClientSettings(addresses_of(apache_kafka.bootstrap)))
    try:
        async with running_load(bridge.http_url) as (load, subscribers):

            async def service(what: str) -> None:
                """Wait until events are acknowledged and delivered again."""
                before = progress()
                await until(
                    lambda: all(now >= old + STEADY_EVENTS for now, old in zip(progress(), before, strict=True)), what
                )

            def progress() -> list[int]:
                return [load.acknowledged_count, *(one.next_offset for one in subscribers)]

            await service("service at the start")
            for is_leader in (True, False):
                restart = await kill_node(apache_kafka, cluster, is_leader=is_leader)
                try:
                    await service(f"service after the kill of a broker (leader: {is_leader})")
                finally:
                    await asyncio.to_thread(restart)
                await asyncio.to_thread(bridge.kill)
                await asyncio.to_thread(bridge.restart)
                await service("service after the kill of the bridge")
            load.is_over = True
            await until(lambda: load_is_done(load), "the writers are done")
            values = [json.loads(value) for value in await asyncio.to_thread(read_values, bridge.upstream, ROOM)]
            await until(lambda: all(one.next_offset >= len(values) for one in subscribers), "everything is delivered")
        for isolation in Isolation:
            load.history.note(
                FinalLog(place=PLACE, isolation=isolation, records=list(enumerate(values)), end_offset=len(values))
            )
        print(
            f"{load.acknowledged_count} acknowledged, {load.unknown_count} without an answer, {len(values)} stored; "
            + ", ".join(f"{one.kind}: {one.connections} connections" for one in subscribers)
        )
        anomalies = anomalies_in(load.history.events)
        assert not anomalies, report(anomalies)
        for one in subscribers:
            assert one.connections > 2, "each kill of the bridge ends the connections"
            assert not [control for control in one.controls if control.get("control") == "gap"]
    finally:
        cluster.close()
        await asyncio.to_thread(bridge.kill)
        await delete_all_topics(apache_kafka.bootstrap)


def load_is_done(load: Load) -> bool:
    """Whether every event has an outcome."""
    ended = sum(isinstance(event, Ended) for event in load.history.events)
    return ended == sum(isinstance(event, Sent) for event in load.history.events)
