"""Memory of the HTTP port under clients that do not read their answers, or do not finish their requests.

Each attack runs against a real process whose anonymous memory is sampled. What the old server held is in the comments:
the bounds lie far below it and far above the noise.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.http_json import ask
from tests.support.room_sockets import text, upgrade_request
from tests.support.server import HOST, KwireProcess, wait_until
from tests.support.stuck_clients import MIB, MemoryWatch, connected, send_to_all, stuck_clients

# Above what one answer may have.
STORED_BYTES = 9 * MIB
EVENT_BYTES = 90_000
READERS = 40
SOCKETS = 30
UPLOADS = 40
UPLOAD_BYTES = 8 * MIB
# All attacks together with what the allocator keeps; kwire.http.memory.bytes is 64 MiB.
GROWTH_MAX = 160 * MIB
# What may be left when the clients are gone: code that was loaded, caches.
SPARE_BYTES = 64 * MIB
RETURN_TIMEOUT_S = 60.0
OK = b"HTTP/1.1 200 OK\r\n"


class Attacked(NamedTuple):
    """The server, and its memory before any attack."""

    process: KwireProcess
    before_bytes: int

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self.process, self.before_bytes)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    settings = {
        "kwire.send.timeout.ms": "3000",
        "kwire.http.memory.wait.ms": "500",
        "kwire.http.receive.timeout.ms": "3000",
    }
    process = KwireProcess(tmp_path_factory.mktemp("http-memory"), settings=settings)
    process.start()
    try:
        process.ready()
        _fill(process.http_url)
        yield Attacked(process, process.anonymous_memory_bytes())
        assert process.is_running
        assert process.stop() == 0
    finally:
        process.kill()


def _fill(url: str) -> None:
    """Each way to read has more to answer than one answer may have."""
    schema = {"eventType": "e", "type": "string"}
    assert ask(f"{url}/topics", "POST", {"name": "store", "schemas": [schema]}).status == 201
    assert ask(f"{url}/topics/parts", "POST", {"num_partitions": 1}).status == 201
    payload = "x" * EVENT_BYTES
    for _ in range(STORED_BYTES // EVENT_BYTES // 10 + 1):
        many = [{"event_type": "e", "data": payload}] * 10
        assert ask(f"{url}/rooms/room/events", "POST", many).status == 201
        assert ask(f"{url}/topics/parts/publish", "POST", many).status == 200
        stored = [{"topic": "store", "type": "e", "payload": payload}] * 10
        assert ask(f"{url}/events", "POST", stored).status == 201


def _head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {HOST}", *headers, "", ""]).encode()


CONSUME = b'{"limit":10000}'
READS = {
    "a page of the event store": _head("GET", "/topics/store/events?limit=1000"),
    "a page of the event store, backwards": _head("GET", "/topics/store/events?limit=1000&order=backwards"),
    "history": _head("GET", "/rooms/room/events?limit=10000"),
    "history as lines": _head("GET", "/rooms/room/events?limit=10000", "Accept: application/x-ndjson"),
    "consume": _head("POST", "/topics/parts/partitions/0/consume", f"Content-Length: {len(CONSUME)}") + CONSUME,
}


def _serve_good_client(url: str) -> None:
    """What an ordinary client does, while others misbehave."""
    for number in range(5):
        told = ask(f"{url}/rooms/good/events", "POST", {"event_type": "e", "data": number})
        assert told.status == 201
        read = ask(f"{url}/rooms/good/events?from_offset=-1")
        assert [event["data"] for event in read.body["events"]] == [number]


def _metric(server: KwireProcess, name: str) -> float:
    with socket.create_connection((HOST, server.http_port)) as client:
        client.sendall(_head("GET", "/metrics", "Connection: close"))
        with client.makefile("rb") as answer:
            for line in answer:
                if line.startswith(name.encode() + b" "):
                    return float(line.split()[1])
    return 0.0


def _stuck_closed(server: KwireProcess) -> float:
    """How many connections the server closed because their clients took no answer."""
    return _metric(server, 'kwire_http_connections_closed_total{reason="stuck"}')


def _check_memory(attacked: Attacked, watch: MemoryWatch) -> None:
    """The attack held little, and its clients, which are gone, hold nothing any longer."""
    print(f"growth {watch.growth_bytes / MIB:.0f} MiB")
    assert watch.growth_bytes <= GROWTH_MAX
    wait_until(lambda: watch.has_returned(SPARE_BYTES), "the memory returns", RETURN_TIMEOUT_S)

    def is_free() -> bool:
        return _metric(attacked.process, "kwire_http_memory_used_bytes") < MIB

    wait_until(is_free, "the budget of the HTTP port is free again", RETURN_TIMEOUT_S)


@pytest.mark.parametrize("name", READS)
def test_clients_that_do_not_read_their_answers_hold_little(attacked: Attacked, name: str) -> None:
    # Before: 17 to 25 MiB for each of them, for as long as the client stayed.
    with attacked.watch() as watch, stuck_clients(attacked.process, READS[name], READERS, OK):
        _serve_good_client(attacked.process.http_url)
    _check_memory(attacked, watch)


def test_a_client_that_does_not_read_its_answer_is_cut_off(attacked: Attacked) -> None:
    closed = _stuck_closed(attacked.process)
    with stuck_clients(attacked.process, READS["history"], 3, OK):
        wait_until(lambda: _stuck_closed(attacked.process) - closed == 3, "the clients are cut off")


def test_socket_histories_that_are_not_read_hold_little(attacked: Attacked) -> None:
    # Before: 22 MiB for each of them.
    request = upgrade_request("/ws") + text("stream.history", 1, room="room", limit=10_000)
    with attacked.watch() as watch, stuck_clients(attacked.process, request, SOCKETS, b"HTTP/1.1 101 "):
        _serve_good_client(attacked.process.http_url)
    _check_memory(attacked, watch)


@pytest.mark.parametrize("headers", [(f"Content-Length: {UPLOAD_BYTES}",), ("Transfer-Encoding: chunked",)])
def test_uploads_that_stop_hold_little(attacked: Attacked, headers: tuple[str, ...]) -> None:
    # Before: all that they had sent, 8 MiB for each of them, for a minute.
    head = _head("POST", "/rooms/room/events", "Content-Type: application/json", *headers)
    if "chunked" in headers[0]:
        head += b"%x\r\n" % UPLOAD_BYTES
    data = head + b" " * (UPLOAD_BYTES - 1)
    with attacked.watch() as watch, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(attacked.process)) for _ in range(UPLOADS)]
        done = send_to_all(clients, data, timeout_s=4.0)
        print(f"{done} of {UPLOADS} uploads were taken whole")
        _serve_good_client(attacked.process.http_url)
    _check_memory(attacked, watch)


def test_lines_that_stop_in_the_middle_hold_little(attacked: Attacked) -> None:
    # Before: all that came of a line, up to 10 MiB for each of them, for as long as the client stayed.
    head = _head("POST", "/rooms/room/events", "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
    data = head + b"%x\r\n" % UPLOAD_BYTES + b"1" * (UPLOAD_BYTES - 1)
    with attacked.watch() as watch, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(attacked.process)) for _ in range(UPLOADS)]
        send_to_all(clients, data, timeout_s=4.0)
        _serve_good_client(attacked.process.http_url)
    _check_memory(attacked, watch)
