"""HTTP connections that hold memory: responses and histories that are not read, request bodies that do not end."""

import selectors
import socket
import time
from contextlib import suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.http import JSON, command, events_path, fill_room, head, upgrade

MEBIBYTE = 1 << 20
ROOM = "abused-history"
ROOM_BYTES = 64 * MEBIBYTE
BODY_BYTES = 8 * MEBIBYTE
HISTORIES_PER_SOCKET = 4
SEND_BYTES = 256 * 1024
UPLOAD_SECONDS_MAX = 10.0
# Small, so that unread data stays in the memory of the server.
RECEIVE_BUFFER_BYTES = 4_096


def _prepare_room(target: Target) -> None:
    with target.http() as connection:
        fill_room(connection, ROOM, ROOM_BYTES)


def _reluctant(target: Target) -> socket.socket:
    connection = target.hold(target.http())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return connection


def _unread_answers(target: Target) -> None:
    for _ in range(target.size):
        with suppress(ConnectionError):  # The server may refuse the request as a defence.
            _reluctant(target).sendall(head("GET", f"{events_path(ROOM)}?limit=10000", 0))


def _stalled_uploads(target: Target) -> None:
    """Send all bodies at the same time, each as fast as the server reads it, without the last byte."""
    begun = head("POST", events_path("abused-uploads"), BODY_BYTES, f"Content-Type: {JSON}")
    body = memoryview(begun + b'"' + b"x" * (BODY_BYTES - 2))  # The last byte is never sent.
    with selectors.DefaultSelector() as selector:
        for _ in range(target.size):
            connection = target.hold(target.http())
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE, body)
        deadline = time.monotonic() + UPLOAD_SECONDS_MAX
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(timeout=1):
                push(selector, key)


def push(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    connection, left = key.fileobj, key.data
    assert isinstance(connection, socket.socket)
    try:
        left = left[connection.send(left[:SEND_BYTES]) :]
    except BlockingIOError:
        return
    except ConnectionError:
        left = left[:0]  # The server has closed the connection as a defence.
    if left:
        selector.modify(connection, selectors.EVENT_WRITE, left)
    else:
        selector.unregister(connection)


def _unread_sockets(target: Target) -> None:
    for _ in range(target.size):
        with suppress(ConnectionError):
            connection = _reluctant(target)
            upgrade(connection, "/ws")
            connection.sendall(command("stream.history", room=ROOM, from_offset=0, limit=10_000) * HISTORIES_PER_SOCKET)


ATTACKS = (
    Attack(
        "unread-answers",
        "{} clients that do not read 8 MiB answers",
        300,
        20,
        _unread_answers,
        _prepare_room,
        is_held=True,
    ),
    Attack("stalled-uploads", "{} uploads of 8 MiB without the last byte", 300, 20, _stalled_uploads, is_held=True),
    Attack(
        "unread-sockets",
        "{} WebSockets that do not read 8 MiB histories",
        50,
        5,
        _unread_sockets,
        _prepare_room,
        is_held=True,
    ),
)
