"""Requests with very many entries, all of which the server has to look at: one at a time, and pipelined."""

import struct
import threading
from collections.abc import Callable
from functools import cache

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.http import COMMAND_ID, READ_BYTES, command, pings, upgrade
from benchmark.admin import LIST_OFFSETS, LIST_OFFSETS_VERSION
from benchmark.groups.wire import string
from benchmark.wire import FETCH, FETCH_MAX_BYTES, FETCH_VERSION, read_frame, request_frame

METADATA, METADATA_VERSION = 3, 4
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 3
DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION = 15, 1
ENTRIES_FULL, ENTRIES_QUICK = 240_000, 5_000


def _names(count: int) -> bytes:
    return struct.pack(">i", count) + b"".join(string(f"none-{number}") for number in range(count))


@cache
def _metadata(count: int) -> bytes:
    return request_frame(METADATA, METADATA_VERSION, _names(count) + b"\0")  # Do not create them.


@cache
def _list_offsets(count: int) -> bytes:
    one = struct.pack(">iiq", 1, 0, -1)
    topics = b"".join(string(f"none-{number}") + one for number in range(count))
    return request_frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, struct.pack(">ii", -1, count) + topics)


@cache
def _offset_fetch(count: int) -> bytes:
    one = struct.pack(">ii", 1, 0)
    topics = b"".join(string(f"none-{number}") + one for number in range(count))
    return request_frame(OFFSET_FETCH, OFFSET_FETCH_VERSION, string("none") + struct.pack(">i", count) + topics)


@cache
def _describe_groups(count: int) -> bytes:
    return request_frame(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, _names(count))


@cache
def _fetch(count: int) -> bytes:
    """Of partitions that one topic does not have, outside any session and without waiting."""
    body = struct.pack(">iiiibii", -1, 0, 0, FETCH_MAX_BYTES, 0, 0, -1)
    body += struct.pack(">i", 1) + string("none") + struct.pack(">i", count)
    body += b"".join(struct.pack(">iiqqi", index, -1, 0, -1, FETCH_MAX_BYTES) for index in range(count))
    return request_frame(FETCH, FETCH_VERSION, body + struct.pack(">ih", 0, 0))


LARGE = (_metadata, _list_offsets, _offset_fetch, _describe_groups)


def _one(request: Callable[[int], bytes]) -> Callable[[Target], None]:
    def strike(target: Target) -> None:
        with target.kafka() as connection:
            connection.sendall(request(target.size))
            read_frame(connection)

    return strike


def _pipelined(target: Target) -> None:
    """All of them at once on one connection; another thread sends, because nobody reads before that otherwise."""
    with target.kafka() as connection:
        frames = b"".join(request(target.size) for request in LARGE)
        sending = threading.Thread(target=connection.sendall, args=(frames,), daemon=True)
        sending.start()
        received = b""
        for _ in LARGE:
            received = read_frame(connection, received)
            size = 4 + int(struct.unpack_from(">i", received)[0])
            received = received[size:]
        sending.join(timeout=1)


def _ping_flood(target: Target) -> None:
    with target.http() as connection:
        upgrade(connection, "/ws")
        flood = pings(target.size) + command("stream.history", room="none")
        sending = threading.Thread(target=connection.sendall, args=(flood,), daemon=True)
        sending.start()
        received = b""
        while COMMAND_ID not in received:  # What is sent last is answered last.
            data = connection.recv(READ_BYTES)
            if not data:
                break  # The server has had enough: that is a defence.
            received = received[-len(COMMAND_ID) :] + data
        sending.join(timeout=1)


ATTACKS = (
    Attack("metadata", "Metadata of {} topics", ENTRIES_FULL, ENTRIES_QUICK, _one(_metadata)),
    Attack("list-offsets", "ListOffsets of {} topics", ENTRIES_FULL, ENTRIES_QUICK, _one(_list_offsets)),
    Attack("offset-fetch", "OffsetFetch of {} topics", ENTRIES_FULL, ENTRIES_QUICK, _one(_offset_fetch)),
    Attack("describe-groups", "DescribeGroups of {} groups", ENTRIES_FULL, ENTRIES_QUICK, _one(_describe_groups)),
    Attack("pipelined", "these four pipelined, {} entries each", ENTRIES_FULL, ENTRIES_QUICK, _pipelined),
    Attack("fetch", "Fetch of {} partitions", ENTRIES_FULL, ENTRIES_QUICK, _one(_fetch)),
    Attack("ping-flood", "{} WebSocket pings at once", 1_000_000, 10_000, _ping_flood),
)
