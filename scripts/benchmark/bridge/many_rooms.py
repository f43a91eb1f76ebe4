"""Very many rooms through a bridge, with one event each, and subscribers in some of them.

A subscriber has a WebSocket of its own, in a room of its own. Each gets one event: the time from the publish to the
delivery shows that it is served.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

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
EVENT_TYPE = "bench"
CREATED = 201

# The subscribers by their rooms.
Sockets = dict[str, ClientWebSocketResponse]


async def run_many_rooms(bridge: RunningServer, rooms: int, subscribers: int, idle_seconds: float) -> list[Sample]:
    url = f"http://{LOOPBACK}:{bridge.http_port}"
    figures: dict[str, float] = {"rooms": rooms, "subscribers": subscribers, "empty_mb": anonymous_mb(bridge)}
    timeout = ClientTimeout(total=REQUEST_SECONDS)
    async with ClientSession(url, connector=TCPConnector(limit=0), timeout=timeout) as session:
        names = [f"many-{number}" for number in range(rooms)]
        say(f"creating {rooms:,} rooms")
        began, cpu = time.perf_counter(), procfs.cpu_seconds(bridge.pid)
        await _for_all(names, CREATING_MAX, lambda name: _publish(session, name))
        figures["create_s"] = time.perf_counter() - began
        figures["create_cpu_ms"] = (procfs.cpu_seconds(bridge.pid) - cpu) * 1000 / rooms
        figures["rooms_per_s"] = rooms / figures["create_s"]
        figures["rooms_mb"] = anonymous_mb(bridge)
        figures["bytes_per_room"] = (figures["rooms_mb"] - figures["empty_mb"]) * MEGABYTE / rooms
        figures["rooms_idle_cpu_percent"] = await _idle_cpu_percent(bridge, idle_seconds)

        say(f"{subscribers:,} subscribers come")
        chosen = [names[number * rooms // subscribers] for number in range(subscribers)]
        began = time.perf_counter()
        async with _subscribers(session, chosen) as sockets:
            figures["subscribe_s"] = time.perf_counter() - began
            figures["subscribers_mb"] = anonymous_mb(bridge)
            grown = (figures["subscribers_mb"] - figures["rooms_mb"]) * MEGABYTE
            figures["bytes_per_subscriber"] = grown / subscribers
            figures["idle_cpu_percent"] = await _idle_cpu_percent(bridge, idle_seconds)
            figures["connections"] = metrics_at(f"{url}/metrics")[CONNECTIONS]
            latencies = Latencies.of([await _delivery_ns(session, sockets[name], name) for name in chosen])
    figures |= latencies.figures()
    return [Sample(BRIDGE, 1, MANY_ROOMS, figures, {"latency": latencies.encode()})]


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


@asynccontextmanager
async def _subscribers(session: ClientSession, rooms: Sequence[str]) -> AsyncIterator[Sockets]:
    """Subscribe to rooms, from the next event on."""
    async with AsyncExitStack() as stack:
        sockets: Sockets = {}

        async def subscribe(room: str) -> None:
            socket = sockets[room] = await session.ws_connect(f"/rooms/{room}/subscribe")
            stack.push_async_callback(socket.close)
            message = await _receive(socket, room)
            if "result" not in message:
                raise ChildFailed(f"a subscription to the room {room} was refused: {message}")

        await _for_all(rooms, SUBSCRIBING_MAX, subscribe)
        yield sockets


async def _delivery_ns(session: ClientSession, socket: ClientWebSocketResponse, room: str) -> int:
    """Publish an event, and return the nanoseconds until its subscriber has it."""

    async def receive() -> int:
        while True:
            message = await _receive(socket, room)
            if message.get("room") == room and message.get("offset") == 1 and "data" in message:
                return time.perf_counter_ns()

    began = time.perf_counter_ns()
    received_at, _ = await asyncio.gather(receive(), _publish(session, room))
    return received_at - began


async def _receive(socket: ClientWebSocketResponse, room: str) -> dict[str, Any]:
    message = await socket.receive(EVENT_SECONDS)
    if message.type is not WSMsgType.TEXT:
        raise ChildFailed(f"the subscriber of the room {room} was disconnected: {message.type.name} {message.data}")
    found: dict[str, Any] = json.loads(message.data)
    return found


async def _idle_cpu_percent(bridge: RunningServer, seconds: float) -> float:
    """Return the share of a core that the bridge takes while nothing is published."""
    cpu, began = procfs.cpu_seconds(bridge.pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (procfs.cpu_seconds(bridge.pid) - cpu) / (time.perf_counter() - began)
