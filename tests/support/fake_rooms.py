"""A server of rooms in memory that speaks the frames of the bridge and can be made to fail in chosen ways.

It shares nothing with the server but the frames, so a test of a client says what the client does, whatever the server
is doing. The tests in tests/end_to_end run the same clients against the real one.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import WSMsgType, web

TIMESTAMP = "2025-10-15T19:30:00.000Z"


@dataclass
class FakeRoom:
    epoch: str
    oldest: int = 0
    events: dict[int, dict[str, Any]] = field(default_factory=dict)
    end: int = 0

    @property
    def newest(self) -> int:
        return self.end - 1


@dataclass(eq=False)
class _Reader:
    room: str
    next_offset: int
    is_told_caught_up: bool = False


class _Socket(Protocol):
    async def send_str(self, data: str) -> None: ...


class _Lines:
    """A streaming answer, where a frame is a line."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    async def send_str(self, data: str) -> None:
        await self._response.write(data.encode() + b"\n")


@dataclass(eq=False)
class _Connection:
    socket: _Socket
    transport: asyncio.Transport
    readers: dict[str, _Reader] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class FakeRooms:
    """`answers_lost`: so many publishes are stored but their connection is cut before the answer."""

    def __init__(self) -> None:
        self.rooms: dict[str, FakeRoom] = {}
        self.connections: set[_Connection] = set()
        self.subscribes: list[dict[str, Any]] = []
        self.unsubscribes: list[str] = []
        self.connects = 0
        self.answers_lost = 0
        self.refuses_to_connect = False
        self.refusals: list[dict[str, Any]] = []
        self._epochs = 0

    def room(self, name: str) -> FakeRoom:
        if name not in self.rooms:
            self._epochs += 1
            self.rooms[name] = FakeRoom(f"epoch-{self._epochs}")
        return self.rooms[name]

    def publish(self, name: str, data: Any, event_type: str = "message", **metadata: str) -> dict[str, Any]:
        room = self.room(name)
        event = {
            "room": name,
            "event_id": f"evt_{room.end}",
            "offset": room.end,
            "type": event_type,
            "data": data,
            "timestamp": TIMESTAMP,
            "metadata": metadata,
        }
        room.events[room.end] = event
        room.end += 1
        self._wake()
        return event

    def trim(self, name: str, oldest: int) -> None:
        room = self.room(name)
        room.oldest = oldest
        room.events = {offset: event for offset, event in room.events.items() if offset >= oldest}

    def shorten(self, name: str, end: int) -> None:
        room = self.room(name)
        room.end = end
        room.events = {offset: event for offset, event in room.events.items() if offset < end}

    def recreate(self, name: str) -> None:
        del self.rooms[name]
        self.room(name)

    def cut(self) -> None:
        """End every connection in the middle of whatever it does."""
        for connection in list(self.connections):
            connection.transport.abort()

    async def tell(self, frame: dict[str, Any]) -> None:
        """A frame to everybody."""
        for connection in list(self.connections):
            await connection.socket.send_str(json.dumps(frame))

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/ws", self._serve_socket)
        app.router.add_get("/rooms/{room}/subscribe", self._serve_lines)
        app.router.add_post("/rooms/{room}/events", self._publish_many)
        app.router.add_post("/api/v1/command", self._serve_command)
        return app

    def _wake(self) -> None:
        for connection in self.connections:
            connection.changed.set()

    async def _publish_many(self, request: web.Request) -> web.Response:
        name = request.match_info["room"]
        stored = [self.publish(name, each["data"], each["event_type"]) for each in await request.json()]
        return web.json_response(
            {
                "offset": stored[0]["offset"],
                "event_ids": [event["event_id"] for event in stored],
                "subscribers_notified": 0,
            },
            status=201,
        )

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        self.connects += 1
        if self.refuses_to_connect:
            return web.json_response({"error": {"code": "NotReady", "message": "later"}}, status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        connection = _Connection(socket, request.transport)
        self.connections.add(connection)
        sender = asyncio.create_task(self._send_events(connection))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await self._command(connection, json.loads(message.data))
        finally:
            self.connections.discard(connection)
            sender.cancel()
        return socket

    async def _serve_lines(self, request: web.Request) -> web.StreamResponse:
        self.connects += 1
        name = request.match_info["room"]
        payload: dict[str, Any] = {**request.query}
        if "from_offset" in payload:
            payload["from_offset"] = int(payload["from_offset"])
        self.subscribes.append(payload)
        if self.refusals:
            return web.json_response({"error": self.refusals.pop(0)}, status=429)
        answer = self._place(payload, name)
        if "error" in answer or self.refuses_to_connect:
            return web.json_response(answer, status=503 if self.refuses_to_connect else 400)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        connection = _Connection(_Lines(response), request.transport)
        await connection.socket.send_str(json.dumps({"control": "subscribed", **answer["result"]}))
        connection.readers[name] = _Reader(name, answer["result"]["next_offset"])
        connection.changed.set()
        self.connections.add(connection)
        try:
            await self._send_events(connection)
        finally:
            self.connections.discard(connection)
        return response

    async def _serve_command(self, request: web.Request) -> web.Response:
        frame = await request.json()
        result = self._result(frame["command"], frame["payload"])
        if result is None:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(result)

    def _result(self, command: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Of the two commands that any door takes; None if the connection is to be cut."""
        name = payload["room"]
        if command == "stream.history":
            room = self.room(name)
            found = [event for offset, event in room.events.items() if offset >= payload.get("from_offset", 0)]
            return {
                "events": found[: payload.get("limit", 100)],
                "oldest_offset": room.oldest,
                "newest_offset": room.newest,
            }
        assert command == "stream.publish"
        event = self.publish(name, payload["data"], payload["event_type"], **payload.get("metadata", {}))
        if self.answers_lost:
            self.answers_lost -= 1
            return None
        return {"event_id": event["event_id"], "offset": event["offset"], "subscribers_notified": 0}

    async def _command(self, connection: _Connection, frame: dict[str, Any]) -> None:
        payload, name = frame["payload"], frame["payload"]["room"]
        result: dict[str, Any] | None
        match frame["command"]:
            case "stream.subscribe":
                self.subscribes.append(payload)
                if self.refusals:
                    await self._answer(connection, frame, error=self.refusals.pop(0))
                    return
                await self._subscribe(connection, frame, payload, name)
                return
            case "stream.unsubscribe":
                self.unsubscribes.append(name)
                result = {"success": connection.readers.pop(name, None) is not None}
            case command:
                result = self._result(command, payload)
                if result is None:
                    connection.transport.abort()
                    return
        await self._answer(connection, frame, result=result)

    async def _subscribe(
        self, connection: _Connection, frame: dict[str, Any], payload: dict[str, Any], name: str
    ) -> None:
        answer = self._place(payload, name)
        await self._answer(connection, frame, **answer)
        if "result" in answer:
            connection.readers[name] = _Reader(name, answer["result"]["next_offset"])
            connection.changed.set()

    def _place(self, payload: dict[str, Any], name: str) -> dict[str, Any]:
        """The answer to a subscribe: a result or an error."""
        room, asked = self.room(name), payload.get("from_offset")
        is_recovered = payload.get("epoch", room.epoch) == room.epoch
        if not is_recovered or asked == 0:
            begins_at = room.oldest
        elif asked is None:
            begins_at = room.oldest if payload.get("replay") else room.end
        elif asked < 0:
            begins_at = max(room.oldest, room.end + asked)
        else:
            begins_at = asked
        if begins_at < room.oldest:
            error = {
                "code": "OffsetOutOfRange",
                "message": "too old",
                "requested": begins_at,
                "oldest": room.oldest,
                "newest": room.newest,
            }
            return {"error": error}
        result = {
            "room": name,
            "epoch": room.epoch,
            "oldest_offset": room.oldest,
            "newest_offset": room.newest,
            "next_offset": begins_at,
            "recovered": is_recovered and begins_at <= room.end,
        }
        return {"result": result}

    async def _answer(self, connection: _Connection, frame: dict[str, Any], **answer: Any) -> None:
        await connection.socket.send_str(json.dumps({"request_id": frame["request_id"], **answer}))

    async def _send_events(self, connection: _Connection) -> None:
        while True:
            await connection.changed.wait()
            connection.changed.clear()
            for reader in list(connection.readers.values()):
                await self._send_to(connection, reader)

    async def _send_to(self, connection: _Connection, reader: _Reader) -> None:
        room = self.room(reader.room)
        while connection.readers.get(reader.room) is reader and reader.next_offset < room.end:
            event = room.events.get(reader.next_offset)
            reader.next_offset += 1
            if event is not None:
                await connection.socket.send_str(json.dumps(event))
        if not reader.is_told_caught_up and connection.readers.get(reader.room) is reader:
            reader.is_told_caught_up = True
            mark = {"control": "caught_up", "room": reader.room, "offset": reader.next_offset - 1}
            await connection.socket.send_str(json.dumps(mark))


@asynccontextmanager
async def fake_rooms(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[FakeRooms, str]]:
    """The rooms and the URL at which they are."""
    rooms = FakeRooms()
    runner = web.AppRunner(rooms.application(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield rooms, f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        rooms.cut()
        await runner.cleanup()
