"""The HTTP requests of the attackers and the good client, encoded by hand."""

import json
import os
import socket
import struct
import time

from benchmark.abuse.bounds import ANSWER_SECONDS_MAX

READ_BYTES = 65_536
EVENT_TYPE = "attack"
FILL_EVENT_BYTES = 8_192
FILL_EVENTS_PER_REQUEST = 100
JSON, LINES = "application/json", "application/x-ndjson"
FIN_AND_TEXT, FIN_AND_PING = 0x81, 0x89
LENGTH_OF_16_BITS = 126
NO_MASK = 0  # A mask of zeros changes nothing.
COMMAND_NUMBER = 77
COMMAND_ID = f'"request_id":{COMMAND_NUMBER}'.encode()
MASKED = 0x80


def head(method: str, path: str, size: int, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {size}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(path: str, body: bytes, content_type: str, *more: str) -> bytes:
    return head("POST", path, len(body), f"Content-Type: {content_type}", *more) + body


def events_path(room: str) -> str:
    return f"/rooms/{room}/events"


def ask(connection: socket.socket, request: bytes) -> int:
    """Send a request, read the complete response, and return its status."""
    connection.sendall(request)
    return read_answer(connection)


def read_answer(connection: socket.socket) -> int:
    """Read a response with a content length, or one in chunks. Return its status."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _received(connection, deadline)
    lowered = data[:end].lower()
    left = data[end + 4 :]
    if b"content-length:" in lowered:
        missing = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0]) - len(left)
        while missing > 0:
            missing -= len(_received(connection, deadline))
    else:
        tail = left[-5:]
        while not tail.endswith(b"0\r\n\r\n"):
            tail = (tail + _received(connection, deadline))[-5:]
    return int(lowered.split(b" ", 2)[1])


def _received(connection: socket.socket, deadline: float) -> bytes:
    if time.monotonic() > deadline:
        raise TimeoutError(f"no whole answer after {ANSWER_SECONDS_MAX} s")
    data = connection.recv(READ_BYTES)
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data


def fill_room(connection: socket.socket, room: str, size: int) -> None:
    """Publish events until the room holds `size` bytes of data."""
    event = {"event_type": EVENT_TYPE, "data": "x" * FILL_EVENT_BYTES}
    body = json.dumps([event] * FILL_EVENTS_PER_REQUEST).encode()
    request = post(events_path(room), body, JSON)
    for _ in range(-(-size // (FILL_EVENT_BYTES * FILL_EVENTS_PER_REQUEST))):
        status = ask(connection, request)
        if status >= 300:
            raise ConnectionError(f"room {room} could not be filled: status {status}")


def upgrade(connection: socket.socket, path: str) -> None:
    """Upgrade the connection to a WebSocket."""
    connection.sendall(
        head(
            "GET",
            path,
            0,
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: a3dpcmUtYmVuY2gtYWJ1cw==",
        )
    )
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1) or _closed()
    if not data.startswith(b"HTTP/1.1 101"):
        raise ConnectionError(f"no WebSocket at {path}: {data[:80]!r}")


def _closed() -> bytes:
    raise ConnectionError("the server has closed the connection")


def command(name: str, **payload: object) -> bytes:
    """Return a command for the WebSocket at /ws, as a masked text message."""
    text = json.dumps({"command": name, "payload": payload, "request_id": COMMAND_NUMBER}).encode()
    return struct.pack(">BBHI", FIN_AND_TEXT, MASKED | LENGTH_OF_16_BITS, len(text), NO_MASK) + text


def pings(count: int) -> bytes:
    """Return masked pings without payload."""
    return (struct.pack(">BB", FIN_AND_PING, MASKED) + os.urandom(4)) * count
