"""The connection machine: requests come out one by one, answers leave in request order."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire.apis import APIS
from kwire.wire.connection import Request, ServerConnection
from kwire.wire.errors import UnsupportedRequest, WireError
from kwire.wire.frame import ReceiveMemory


def connection() -> ServerConnection:
    return ServerConnection(APIS, ReceiveMemory(1024 * 1024), 100_000)


def request_bytes(
    key: int, version: int, correlation_id: int, client_id: bytes | None = b"me", rest: bytes = b""
) -> bytes:
    length = -1 if client_id is None else len(client_id)
    body = struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"") + rest
    return struct.pack(">i", len(body)) + body


def feed(machine: ServerConnection, data: bytes) -> list[tuple[Request, bytes]]:
    buffer = machine.reader.buffer()
    buffer[: len(data)] = data
    machine.reader.received(len(data))
    out = []
    while (frame := machine.reader.next_frame()) is not None:
        request = machine.open(frame)
        out.append((request, bytes(request.body or b"")))
    machine.reader.settle()
    return out


def test_a_request_fed_byte_by_byte_is_read_once_complete() -> None:
    machine = connection()
    data = request_bytes(3, 1, 77, b"client", b"body")
    out = [one for byte in data for one in feed(machine, bytes((byte,)))]
    [(request, body)] = out
    assert (request.api.name, request.version, request.correlation_id, request.client_id) == (
        "Metadata",
        1,
        77,
        "client",
    )
    assert body == b"body"


def test_the_header_tags_of_flexible_versions_are_skipped() -> None:
    machine = connection()
    plain = request_bytes(3, 9, 1, b"c", b"\x00rest")
    tagged = request_bytes(3, 9, 2, None, b"\x02" + b"\x00\x03abc" + b"\x07\x01z" + b"rest")
    assert [body for _, body in feed(machine, plain + tagged)] == [b"rest", b"rest"]


@pytest.mark.parametrize(
    "data",
    [
        request_bytes(3, 1, 1)[:4] + b"\x00\x03",
        struct.pack(">i", 10) + struct.pack(">hhih", 3, 1, 1, 50),
        request_bytes(3, 9, 1, b"c", b"\xff\xff\xff\xff\xff\xff"),
        request_bytes(3, 9, 1, b"c", b"\x01\x00\x7f"),
        request_bytes(3, 9, 1, b"c", b""),
        request_bytes(3, 1, 1, b"\xff\xfe"),
    ],
)
def test_a_garbled_header_is_an_error_of_the_wire(data: bytes) -> None:
    machine = connection()
    if len(data) < 10:
        data = struct.pack(">i", 2) + data[4:]
    with pytest.raises(WireError):
        feed(machine, data)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 14), (3, -1), (1, 3)])
def test_what_is_not_served_is_refused(key: int, version: int) -> None:
    with pytest.raises(UnsupportedRequest):
        feed(connection(), request_bytes(key, version, 1))


def test_api_versions_above_our_range_is_handed_out_as_version_zero() -> None:
    [(request, _)] = feed(connection(), request_bytes(18, 99, 5, b"c", b"\x00whatever"))
    assert request.body is None
    assert request.version == 0


def test_the_answer_header_has_tags_in_flexible_versions_but_never_for_api_versions() -> None:
    machine = connection()
    old, new, versions = (
        request
        for request, _ in feed(
            machine,
            request_bytes(3, 1, 1) + request_bytes(3, 9, 2, b"", b"\x00") + request_bytes(18, 3, 3, b"", b"\x00"),
        )
    )
    assert machine.answer_now(old, [b"ab"]) == [struct.pack(">ii", 6, 1) + b"ab"]
    assert machine.answer_now(new, [b"ab"]) == [struct.pack(">iib", 7, 2, 0) + b"ab"]
    assert machine.answer_now(versions, [b"ab"]) == [struct.pack(">ii", 6, 3) + b"ab"]


def test_large_parts_of_an_answer_are_not_copied() -> None:
    machine = connection()
    [(request, _)] = feed(machine, request_bytes(3, 1, 1))
    part = memoryview(bytes(1000))
    ready = machine.answer_now(request, [b"head", part])
    assert any(chunk is part for chunk in ready)


@given(st.lists(st.sampled_from(["now", "later", "none"]), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_answers_leave_in_request_order(kinds: list[str], chance: random.Random) -> None:
    """Some requests are answered at once, some later in any order, some not at all (acks=0)."""
    machine = connection()
    stream = b"".join(request_bytes(3, 1, number) for number in range(len(kinds)))
    sent = b""
    later = []
    for (request, _), kind in zip(feed(machine, stream), kinds, strict=True):
        if kind == "later":
            machine.wait(request)
            later.append(request)
        else:
            sent += b"".join(machine.answer_now(request, [b"x"] if kind == "now" else None))
    chance.shuffle(later)
    for request in later:
        sent += b"".join(machine.answer_later(request, [b"y"]))
    assert not machine.waiting
    numbers = [struct.unpack_from(">ii", sent, at)[1] for at in range(0, len(sent), 9)]
    assert numbers == [number for number, kind in enumerate(kinds) if kind != "none"]
