"""Requests made to stop the loop or to fill the memory, against a real server: others do not notice them."""

import re
import socket
import struct
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from kwire.wire.apis import (
    API_VERSIONS,
    DESCRIBE_GROUPS,
    FETCH,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
)
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.support.clients import Topics
from tests.support.clients_raw import NONE, RawConnection, batch, produce_request, produced
from tests.support.large_requests import large_request, request_frame
from tests.support.server import KwireProcess, wait_until

ELEMENT_COUNT = 120_000
PING_COUNT = 12_000
# A chunk is a few milliseconds. Before requests were handled in chunks each of these took 0.2 to 0.9 seconds.
STALL_SECONDS_MAX = 0.15
ANSWER_TIMEOUT_S = 120.0
# A server that reads takes something within this time.
BLOCKED_S = 3.0
JOIN_VERSION = 3
GROUP_MAX_SIZE_REACHED = 81
MIB = 1024 * 1024
# Of one member: nearly as much as it may have, in a request that is not large.
MEMBER_METADATA_BYTES = MIB - 1024

LARGE = [
    (LIST_OFFSETS, ("topics", "partitions")),
    (LIST_OFFSETS, ("topics",)),
    (METADATA, ("topics",)),
    (OFFSET_FETCH, ("groups", "topics", "partition_indexes")),
    (DESCRIBE_GROUPS, ("groups",)),
    (FETCH, ("topics", "partitions")),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KwireProcess]:
    process = KwireProcess(tmp_path)
    process.start()
    try:
        process.ready()
        yield process
        assert process.stop() == 0
    finally:
        process.kill()


@contextmanager
def no_stall(server: KwireProcess, what: str) -> Iterator[None]:
    """The maximum is since the start, during which the server has nobody to hold up."""
    before = stall_seconds_max(server)
    yield
    assert stall_seconds_max(server) <= max(before, STALL_SECONDS_MAX), what


def stall_seconds_max(server: KwireProcess) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics") as response:
        found = re.search(r"^kwire_loop_stall_seconds_max (\S+)", response.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def correlation_id(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame)[0])


def test_large_requests_are_answered_without_a_stall(server: KwireProcess) -> None:
    for api, path in LARGE:
        with (
            no_stall(server, f"{api.name} {path}"),
            RawConnection(server.kafka_address, ANSWER_TIMEOUT_S) as connection,
        ):
            connection.send_bytes(large_request(api, api.last_version, path, ELEMENT_COUNT))
            assert correlation_id(connection.receive_frame()) == 1


def test_pipelined_large_requests_are_answered_in_order_without_a_stall(server: KwireProcess) -> None:
    body = large_request(METADATA, 12, ("topics",), ELEMENT_COUNT // 4)
    ping = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    with no_stall(server, "pipelined"), RawConnection(server.kafka_address, ANSWER_TIMEOUT_S) as connection:
        for number in range(0, 10, 2):
            connection.send_bytes(body[:8] + struct.pack(">i", number) + body[12:])
            connection.send_bytes(request_frame(API_VERSIONS, 3, ping, number + 1))
        assert [correlation_id(connection.receive_frame()) for _ in range(10)] == list(range(10))


def test_flood_of_small_requests_is_answered_in_order_without_a_stall(server: KwireProcess) -> None:
    ping = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    flood = b"".join(request_frame(API_VERSIONS, 3, ping, number) for number in range(PING_COUNT))
    with no_stall(server, "flood"), RawConnection(server.kafka_address, ANSWER_TIMEOUT_S) as connection:
        sending = threading.Thread(target=connection.send_bytes, args=(flood,))
        sending.start()
        assert [correlation_id(connection.receive_frame()) for _ in range(PING_COUNT)] == list(range(PING_COUNT))
        sending.join()


def join_frame(group_id: str, metadata: bytes) -> bytes:
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=600_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return request_frame(JOIN_GROUP, JOIN_VERSION, encode_message(join, JOIN_VERSION))


def joined(connection: RawConnection) -> JoinGroupResponse:
    return decode_message(JoinGroupResponse, JOIN_VERSION, connection.receive_frame()[4:])


def test_metadata_of_group_members_is_held_up_to_a_bound(server: KwireProcess) -> None:
    """The first member does not come back, so every other join waits, and what it says is held as long."""
    large = join_frame("greedy", bytes(MEMBER_METADATA_BYTES))
    with ExitStack() as stack:
        first, *members, last, much = [
            stack.enter_context(RawConnection(server.kafka_address, ANSWER_TIMEOUT_S)) for _ in range(3 + 16)
        ]
        first.send_bytes(join_frame("greedy", b""))
        assert joined(first).error_code == NONE
        for one in members:
            one.send_bytes(large)
        wait_until(lambda: member_count(server, "greedy") == 17, "the first member, and as many large ones as fit")
        last.send_bytes(large)
        assert joined(last).error_code == GROUP_MAX_SIZE_REACHED
        much.send_bytes(join_frame("other", bytes(MIB)))
        assert joined(much).error_code == GROUP_MAX_SIZE_REACHED


def member_count(server: KwireProcess, group_id: str) -> int:
    with RawConnection(server.kafka_address) as connection:
        body = encode_message(DescribeGroupsRequest(groups=[group_id]), 0)
        connection.send_bytes(request_frame(DESCRIBE_GROUPS, 0, body))
        (group,) = decode_message(DescribeGroupsResponse, 0, connection.receive_frame()[4:]).groups
    return len(group.members)


def test_joins_of_one_connection_are_not_all_held(server: KwireProcess) -> None:
    """They wait for the other member, or are refused after those; and those that wait for an answer are bounded."""
    with RawConnection(server.kafka_address) as first, RawConnection(server.kafka_address) as second:
        first.send_bytes(join_frame("one-connection", b""))
        assert joined(first).error_code == NONE
        before = server.anonymous_memory_bytes()
        second.socket.settimeout(BLOCKED_S)
        with pytest.raises(TimeoutError):
            second.socket.sendall(300 * join_frame("one-connection", bytes(MEMBER_METADATA_BYTES)))
        assert server.anonymous_memory_bytes() - before < 100 * MIB


def test_half_sent_requests_do_not_keep_others_from_being_read(tmp_path: Path) -> None:
    server = KwireProcess(
        tmp_path,
        settings={
            "socket.request.max.bytes": str(4 * MIB),
            "queued.max.request.bytes": str(32 * MIB),
            "kwire.receive.window.ms": "1000",
        },
    )
    server.start()
    hostile: list[socket.socket] = []
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.2):
            for one in hostile:
                with suppress(OSError):  # closed by the server, as it should be, or full
                    one.send(b"\0")

    dripping = threading.Thread(target=drip)
    try:
        server.ready()
        topics = Topics(server.bootstrap)
        topic = topics.create("half-sent")
        topics.close()
        for _ in range(64):
            one = socket.create_connection(server.kafka_address)
            one.setblocking(False)
            # Most of it stays in the socket where the server does not read any longer.
            one.send(struct.pack(">i", 2 * MIB) + bytes(600_000))
            hostile.append(one)
        dripping.start()
        with RawConnection(server.kafka_address, 25.0) as connection:
            answer = connection.call(produce_request(topic, batch(bytes(900_000))), 9)
            assert produced(answer).error_code == NONE
        assert "kwire.receive.rate.min" in server.stderr_path.read_text()
    finally:
        is_over.set()
        if dripping.is_alive():
            dripping.join()
        for one in hostile:
            one.close()
        server.kill()
