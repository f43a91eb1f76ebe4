"""Clients of the HTTP port that ask and do not read, or begin to send and stop; and what the server holds meanwhile."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.server import HOST, KwireProcess

MIB = 1024 * 1024
# So that the operating system takes little of an answer that is not read.
RECEIVE_BUFFER_BYTES = 4096
CONNECT_TIMEOUT_S = 20.0
SAMPLE_INTERVAL_S = 0.01
SEND_BYTES = 256 * 1024


class MemoryWatch:
    """The most memory that the server had while this was open, compared with what it had before any attack."""

    def __init__(self, server: KwireProcess, before_bytes: int) -> None:
        self._server = server
        self._is_over = threading.Event()
        self.before_bytes = self.peak_bytes = before_bytes
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def growth_bytes(self) -> int:
        return self.peak_bytes - self.before_bytes

    def has_returned(self, spare_bytes: int) -> bool:
        """Whether the server is back to what it had, and `spare_bytes` more."""
        return self._server.anonymous_memory_bytes() <= self.before_bytes + spare_bytes

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_INTERVAL_S):
            self.peak_bytes = max(self.peak_bytes, self._server.anonymous_memory_bytes())


@contextmanager
def stuck_clients(server: KwireProcess, request: bytes, count: int, answer_start: bytes) -> Iterator[None]:
    """Clients that have sent a request, whose answer has begun to come, and who do not read it."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(count)]
        for client in clients:
            client.sendall(request)
        for client in clients:
            seen = bytearray()
            while len(seen) < len(answer_start):
                received = client.recv(len(answer_start) - len(seen))
                assert received, "the server has closed the connection"
                seen += received
            assert seen == answer_start, bytes(seen)
            # The rest of it is coming.
            assert client.recv(1, socket.MSG_PEEK)
        yield


@contextmanager
def connected(server: KwireProcess) -> Iterator[socket.socket]:
    assert server.http_port is not None
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        client.settimeout(CONNECT_TIMEOUT_S)
        client.connect((HOST, server.http_port))
        yield client


def send_to_all(clients: Sequence[socket.socket], data: bytes, timeout_s: float) -> int:
    """Send the same bytes on every connection as fast as each takes them; returns how many took them all.

    A connection that the server closes is left alone, and so are all when the time is over.
    """
    left = {client: memoryview(data) for client in clients}
    deadline = time.monotonic() + timeout_s
    done = 0
    for client in clients:
        client.setblocking(False)
    while left and (wait_s := deadline - time.monotonic()) > 0:
        for client in select.select([], list(left), [], wait_s)[1]:
            try:
                sent = client.send(left[client][:SEND_BYTES])
            except BlockingIOError:
                continue
            except OSError:
                del left[client]
                continue
            left[client] = left[client][sent:]
            if not left[client]:
                del left[client]
                done += 1
    return done
