"""Requests with very many entries, all of which the server has to process: single requests, and pipelined ones."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.http import COMMAND_ID, READ_BYTES, command, pings, upgrade
from benchmark.admin import LIST_OFFSETS, LIST_OFFSETS_VERSION
from benchmark.groups.wire import string
from benchmark.wire import FETCH, FETCH_MAX_BYTES, FETCH_VERSION, request_frame, skip_frame

METADATA, METADATA_VERSION = 3, 4
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 3
DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION = 15, 1
PINGING_CONNECTIONS = 32
ENTRIES_FULL, ENTRIES_QUICK = 240_000, 5_000


def _names(count: int) -> bytes:
    return struct.pack(">i", count) + b"".join(string(f"none-{number}") for number in range(count))


@cache
def _metadata(count: int) -> bytes:
    return request_frame(METADATA, METADATA_VERSION, _names(count) + b"\0")  # The topics must not be created.


@cache
def _list_offsets(count: int) -> bytes:
    body = struct.pack(">ii", -1, 1) + string("none") + struct.pack(">i", count)
    body += b"".join(struct.pack(">iq", index, -1) for index in range(count))
    return request_frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)


@cache
def _offset_fetch(count: int) -> bytes:
    body = string("none") + struct.pack(">i", 1) + string("none") + struct.pack(f">i{count}i", count, *range(count))
    return request_frame(OFFSET_FETCH, OFFSET_FETCH_VERSION, body)


@cache
def _describe_groups(count: int) -> bytes:
    return request_frame(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, _names(count))


@cache
def _fetch(count: int) -> bytes:
    """Return a Fetch of partitions that do not exist, without a fetch session and without waiting."""
    body = struct.pack(">iiiibii", -1, 0, 0, FETCH_MAX_BYTES, 0, 0, -1)
    body += struct.pack(">i", 1) + string("none") + struct.pack(">i", count)
    body += b"".join(struct.pack(">iiqqi", index, -1, 0, -1, FETCH_MAX_BYTES) for index in range(count))
    return request_frame(FETCH, FETCH_VERSION, body + struct.pack(">ih", 0, 0))


LARGE = (_metadata, _list_offsets, _offset_fetch, _describe_groups)


def _one(request: Callable[[int], bytes]) -> Callable[[Target], None]:
    def strike(target: Target) -> None:
        with target.kafka() as connection:
            connection.sendall(request(target.size))
            skip_frame(connection)

    return strike


def _pipelined(target: Target) -> None:
    """Send all LARGE requests at once on one connection. A thread sends them, so that responses are read meanwhile."""
    with target.kafka() as connection:
        frames = b"".join(request(target.size) for request in LARGE)
        sending = threading.Thread(target=_send, args=(connection, frames), daemon=True)
        sending.start()
        for _ in LARGE:
            skip_frame(connection)
        sending.join(timeout=1)


def _ping_flood(target: Target) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(target.http()) for _ in range(PINGING_CONNECTIONS)]
        for connection in connections:
            upgrade(connection, "/ws")
        flood = pings(target.size // PINGING_CONNECTIONS) + command("stream.history", room="none")
        threads = [threading.Thread(target=_send, args=(one, flood), daemon=True) for one in connections]
        for thread in threads:
            thread.start()
        for connection in connections:
            _await_answer(connection)
        for thread in threads:
            thread.join(timeout=1)


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # The server may close the connection as a defence.
        connection.sendall(data)


def _await_answer(connection: socket.socket) -> None:
    """Read until the response to the last command, or until the server closes the connection."""
    received = b""
    while COMMAND_ID not in received:
        data = connection.recv(READ_BYTES)
        if not data:
            return
        received = received[-len(COMMAND_ID) :] + data


ATTACKS = (
    Attack("metadata", "Metadata of {} topics", ENTRIES_FULL, ENTRIES_QUICK, _one(_metadata)),
    Attack("list-offsets", "ListOffsets of {} partitions", ENTRIES_FULL, ENTRIES_QUICK, _one(_list_offsets)),
    Attack("offset-fetch", "OffsetFetch of {} partitions", ENTRIES_FULL, ENTRIES_QUICK, _one(_offset_fetch)),
    Attack("describe-groups", "DescribeGroups of {} groups", ENTRIES_FULL, ENTRIES_QUICK, _one(_describe_groups)),
    Attack("pipelined", "these four pipelined, {} entries each", ENTRIES_FULL, ENTRIES_QUICK, _pipelined),
    Attack("fetch", "Fetch of {} partitions", ENTRIES_FULL, ENTRIES_QUICK, _one(_fetch)),
    Attack("ping-flood", "{} WebSocket pings at once", 1_000_000, 32_000, _ping_flood),
)
