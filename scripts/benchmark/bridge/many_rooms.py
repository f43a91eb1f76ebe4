"""Very many rooms through a bridge, with one event each, and subscribers in some of them.

A subscriber has a WebSocket of its own, in a room of its own. Each gets one event: the time from the publish to the
delivery shows that it is served.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import ClientSession, ClientTimeout, ClientWebSocketResponse, TCPConnector, WSMsgType

from benchmark import procfs
from benchmark.bridge.options import MANY_ROOMS
from benchmark.bridge.servers import BRIDGE
from benchmark.histogram import Latencies
from benchmark.house import say
from benchmark.processes import ChildFailed
from benchmark.samples import MEGABYTE, Sample, anonymous_mb
from benchmark.servers import LOOPBACK, RunningServer
from benchmark.stalls import metrics_at

CREATING_MAX = 256
SUBSCRIBING_MAX = 32
# A room waits for those that were asked for before.
REQUEST_SECONDS = 600.0
EVENT_SECONDS = 30.0
CONNECTIONS = "kwire_bridge_connections"
SUBSCRIBED_ROOMS = f"{MANY_ROOMS}, subscribed"
EVENT_TYPE = "bench"
CREATED = 201
# Events of a subscriber that were not waited for.
ARRIVALS_MAX = 10


async def create_rooms(bridge: RunningServer, rooms: int, idle_seconds: float) -> list[Sample]:
    figures: dict[str, float] = {"rooms": rooms, "empty_mb": anonymous_mb(bridge)}
    say(f"creating {rooms:,} rooms")
    began, cpu = time.perf_counter(), procfs.cpu_seconds(bridge.pid)
    async with _session(bridge) as session:
        await _for_all([_name_of(number) for number in range(rooms)], CREATING_MAX, partial(_publish, session))
    figures["create_s"] = time.perf_counter() - began
    figures["create_cpu_ms"] = (procfs.cpu_seconds(bridge.pid) - cpu) * 1000 / rooms
    figures["rooms_per_s"] = rooms / figures["create_s"]
    figures["rooms_mb"] = anonymous_mb(bridge)
    figures["bytes_per_room"] = (figures["rooms_mb"] - figures["empty_mb"]) * MEGABYTE / rooms
    figures["idle_cpu_percent"] = await _idle_cpu_percent(bridge, idle_seconds)
    return [Sample(BRIDGE, 1, MANY_ROOMS, figures)]


async def subscribe_to_rooms(bridge: RunningServer, rooms: int, subscribers: int, idle_seconds: float) -> list[Sample]:
    """Subscribe to some of the rooms that `create_rooms` has created, evenly spread."""
    before_mb = anonymous_mb(bridge)
    say(f"{subscribers:,} subscribers come")
    names = [_name_of(number * rooms // subscribers) for number in range(subscribers)]
    began = time.perf_counter()
    async with _session(bridge) as session, _subscribers(session, names) as subscribed:
        figures: dict[str, float] = {"subscribers": subscribers, "subscribe_s": time.perf_counter() - began}
        figures["subscribers_mb"] = anonymous_mb(bridge)
        figures["bytes_per_subscriber"] = (figures["subscribers_mb"] - before_mb) * MEGABYTE / subscribers
        figures["idle_cpu_percent"] = await _idle_cpu_percent(bridge, idle_seconds)
        figures["connections"] = metrics_at(f"{_url_of(bridge)}/metrics")[CONNECTIONS]
        latencies = Latencies.of([await _delivery_ns(session, one) for one in subscribed])
    return [Sample(BRIDGE, 1, SUBSCRIBED_ROOMS, figures | latencies.figures(), {"latency": latencies.encode()})]


def _name_of(number: int) -> str:
    return f"many-{number}"


def _url_of(bridge: RunningServer) -> str:
    return f"http://{LOOPBACK}:{bridge.http_port}"


def _session(bridge: RunningServer) -> ClientSession:
    return ClientSession(_url_of(bridge), connector=TCPConnector(limit=0), timeout=ClientTimeout(total=REQUEST_SECONDS))


async def _for_all(names: Sequence[str], at_a_time: int, run: Callable[[str], Awaitable[object]]) -> None:
    """Run a function for each name, for some of them at a time."""
    remaining = iter(names)

    async def work() -> None:
        for name in remaining:
            await run(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(work())


async def _publish(session: ClientSession, room: str) -> None:
    async with session.post(f"/rooms/{room}/events", json={"event_type": EVENT_TYPE, "data": room}) as answer:
        if answer.status != CREATED:
            raise ChildFailed(f"a publish to the room {room} was refused: {answer.status} {await answer.text()}")


class _Subscriber:
    """A WebSocket that is read all the time, because the bridge disconnects clients that do not answer its pings."""

    def __init__(self, room: str, socket: ClientWebSocketResponse) -> None:
        self.room = room
        self._socket = socket
        # When events arrived; None after the connection has ended.
        self._arrivals: asyncio.Queue[int | None] = asyncio.Queue(ARRIVALS_MAX)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is WSMsgType.TEXT and "data" in json.loads(message.data):
                self._arrivals.put_nowait(time.perf_counter_ns())
        self._arrivals.put_nowait(None)

    async def arrival_ns(self) -> int:
        """Return when the next event has arrived."""
        async with asyncio.timeout(EVENT_SECONDS):
            arrived_ns = await self._arrivals.get()
        if arrived_ns is None:
            code = self._socket.close_code
            raise ChildFailed(f"the subscriber of the room {self.room} was disconnected: {code}")
        return arrived_ns

    async def close(self) -> None:
        await self._socket.close()
        await self._reading


@asynccontextmanager
async def _subscribers(session: ClientSession, rooms: Sequence[str]) -> AsyncIterator[list[_Subscriber]]:
    """Subscribe to rooms, from the next event on."""
    async with AsyncExitStack() as stack:
        subscribers: list[_Subscriber] = []

        async def subscribe(room: str) -> None:
            socket = await session.ws_connect(f"/rooms/{room}/subscribe")
            message = await socket.receive_json(timeout=EVENT_SECONDS)
            if "result" not in message:
                raise ChildFailed(f"a subscription to the room {room} was refused: {message}")
            subscriber = _Subscriber(room, socket)
            stack.push_async_callback(subscriber.close)
            subscribers.append(subscriber)

        await _for_all(rooms, SUBSCRIBING_MAX, subscribe)
        yield subscribers


async def _delivery_ns(session: ClientSession, subscriber: _Subscriber) -> int:
    """Publish an event, and return the nanoseconds until its subscriber has it."""
    began = time.perf_counter_ns()
    await _publish(session, subscriber.room)
    return await subscriber.arrival_ns() - began


async def _idle_cpu_percent(bridge: RunningServer, seconds: float) -> float:
    """Return the share of a core that the bridge takes while nothing is published."""
    cpu, began = procfs.cpu_seconds(bridge.pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (procfs.cpu_seconds(bridge.pid) - cpu) / (time.perf_counter() - began)
