"""Clients of rooms: a WebSocket that asks and listens, a raw one that can misbehave, and streams over HTTP.

Every wait is bounded. The raw kinds see the very bytes that the server sends.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from kwire.bridge.process import Bridge
from kwire.node import Node

WAIT_S = 15.0
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x11\x22\x33\x44"


def client_frame(opcode: int, payload: bytes, fin: bool = True) -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    first = fin << 7 | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65536:
        head = bytes((first, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0xFF)) + size.to_bytes(8, "big")
    return head + MASK + bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))


def command_text(command: str, request_id: object = None, **payload: object) -> str:
    message: dict[str, object] = {"command": command, "payload": payload}
    if request_id is not None:
        message["request_id"] = request_id
    return json.dumps(message)


def text(command: str, request_id: object = None, **payload: object) -> bytes:
    """A command as a frame."""
    return client_frame(1, command_text(command, request_id, **payload).encode())


def port_of(server: Node | Bridge) -> int:
    assert server.http is not None
    return server.http.port


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


class RoomSocket:
    """Asks commands and reads what comes. What is no answer is kept in order for `next`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.unread: list[dict[str, Any]] = []
        self._number = 0

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            message: dict[str, Any] = json.loads(await self.connection.recv())
            return message

    async def ask(self, command: str, **payload: object) -> dict[str, Any]:
        """The answer; what comes before it is kept."""
        self._number += 1
        await self.connection.send(command_text(command, self._number, **payload))
        while True:
            message = await self.receive()
            if message.get("request_id") == self._number:
                return message
            self.unread.append(message)

    async def result(self, command: str, **payload: object) -> dict[str, Any]:
        answer = await self.ask(command, **payload)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, command: str, **payload: object) -> dict[str, Any]:
        answer = await self.ask(command, **payload)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def next(self) -> dict[str, Any]:
        """The next event or mark."""
        return self.unread.pop(0) if self.unread else await self.receive()

    async def until(self, control: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Events up to the next mark of this kind, and that mark; other marks are left out."""
        events: list[dict[str, Any]] = []
        while True:
            message = await self.next()
            if message.get("control") == control:
                return events, message
            if "control" not in message:
                events.append(message)

    async def events(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = await self.next()
            if "control" not in message:
                found.append(message)
        return found


@asynccontextmanager
async def room_socket(port: int, path: str = "/ws") -> AsyncIterator[RoomSocket]:
    async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=WAIT_S, ping_interval=None) as one:
        yield RoomSocket(one)


class RawSocket:
    """A WebSocket whose every byte is ours to choose."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(WAIT_S):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8), "big")
            return first & 0x0F, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        """The code of the close frame, whatever comes before it."""
        while True:
            opcode, payload = await self.frame()
            if opcode == 8:
                return int.from_bytes(payload[:2], "big")

    async def is_at_end(self) -> bool:
        """Read until the server has closed; True if it did so in time."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
            return True


async def objects(socket: RawSocket, count: int) -> list[dict[str, Any]]:
    """The next texts; what else comes between them is left out."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        opcode, payload = await socket.frame()
        if opcode == 1:
            found.append(json.loads(payload))
    return found


def upgrade_request(path: str = "/ws", **headers: str) -> bytes:
    given = {
        "Host": "127.0.0.1",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return http_request(path, **given)


def http_request(path: str, version: str = "1.1", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items() if value)
    host = "" if "Host" in headers else "Host: 127.0.0.1\r\n"
    return f"GET {path} HTTP/{version}\r\n{host}{lines}\r\n".encode()


@asynccontextmanager
async def raw_socket(port: int, behind: bytes = b"", path: str = "/ws") -> AsyncIterator[RawSocket]:
    """`behind` is sent in one piece with the request."""
    async with raw_connection(port) as (reader, writer):
        writer.write(upgrade_request(path) + behind)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield RawSocket(reader, writer)


@asynccontextmanager
async def raw_connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status_of(port: int, request: bytes) -> tuple[int, bytes]:
    """The status and the rest of the answer to a request that is refused."""
    async with raw_connection(port) as (reader, writer):
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        return int(head.split()[1]), head


class HttpStream:
    """The body of a chunked answer, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self.head = head
        self.is_whole = False
        self._reader = reader
        self._transport: Any = writer.transport
        self._lines: list[bytes] = []
        self._rest = b""

    def pause(self) -> None:
        """Take nothing until `resume`."""
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    async def line(self) -> bytes | None:
        """The next line; None at the end, and then `is_whole` says whether it was told to be one."""
        while not self._lines:
            data = await self._chunk()
            if data is None:
                return None
            *self._lines, self._rest = (self._rest + data).split(b"\n")
        return self._lines.pop(0)

    async def message(self) -> dict[str, Any]:
        """The next object of a stream of lines."""
        while True:
            line = await self.line()
            assert line is not None, "the stream has ended"
            if line:
                message: dict[str, Any] = json.loads(line)
                return message

    async def sent_event(self) -> dict[str, str]:
        """The fields of the next Server-Sent Event; comments go by."""
        fields: dict[str, str] = {}
        while True:
            line = await self.line()
            assert line is not None, "the stream has ended"
            if line.startswith(b":"):
                continue
            if line:
                name, _, value = line.decode().partition(": ")
                fields[name] = value
            elif fields:
                return fields

    async def _chunk(self) -> bytes | None:
        async with asyncio.timeout(WAIT_S):
            size = int((await self._reader.readuntil(b"\r\n")).strip() or b"0", 16)
            data = await self._reader.readexactly(size + 2)
            if not size:
                self.is_whole = await self._reader.read(1) == b""
                return None
            return data[:-2]


@asynccontextmanager
async def http_stream(port: int, path: str, **headers: str) -> AsyncIterator[HttpStream]:
    async with raw_connection(port) as (reader, writer):
        writer.write(http_request(path, **headers))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 200 "), head + await asyncio.wait_for(reader.read(1000), WAIT_S)
        yield HttpStream(reader, writer, head)
