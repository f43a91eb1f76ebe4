"""Accepts the connections of a listener, and opens them in turns by network.

libuv accepts one connection per loop iteration, in the order of arrival. When a thousand connections arrive at once,
the next one would wait for a thousand iterations. Here many connections are accepted per iteration, because that takes
a few microseconds each, and shows the address of the client. The expensive part, a transport and a connection with
their memory, follows in turns. So a client waits for one connection of each other network, not for all of them.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any

from kwire.server.network_turns import NetworkTurns

log = logging.getLogger("kwire.server")

# The time after which no further connection is accepted in a loop iteration, and the maximum number of connections.
ACCEPT_SECONDS = 0.0002
ACCEPTS_PER_ITERATION = 50
# The maximum number of connections of a listener that are opened in a loop iteration. Each takes up to 0.06 ms.
OPENED_PER_ITERATION = 2
# The maximum number of accepted connections of a listener that wait. Further ones wait in the kernel.
WAITING_MAX = 5_000
# The time for which nothing is accepted after the system has refused it, usually because it has no free descriptor.
PAUSE_SECONDS = 0.1


class AcceptQueue:
    """The listening sockets of a listener, and its accepted connections that are not open yet."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        admit_descriptor: Callable[[int], bool],
        warn: Callable[..., None],
    ) -> None:
        """`admit_descriptor` returns whether a connection may keep its descriptor. Otherwise it is closed."""
        self._loop = asyncio.get_running_loop()
        self._make_protocol = make_protocol
        self._admit_descriptor = admit_descriptor
        self._warn = warn
        self._listening: list[socket.socket] = []
        self._is_accepting = False
        self._pause: asyncio.TimerHandle | None = None
        self._turns: NetworkTurns[socket.socket] = NetworkTurns(
            self._loop.call_soon, self._open_waiting, OPENED_PER_ITERATION
        )

    @property
    def port(self) -> int:
        """The port of the first listening socket. It differs from the port that was asked for if that was 0."""
        port: int = self._listening[0].getsockname()[1]
        return port

    async def listen(
        self, host: str | None, port: int, backlog: int, receive_buffer_bytes: int = 0, send_buffer_bytes: int = 0
    ) -> None:
        """Accept connections on all addresses of a host, or of this machine if it is None.

        Accepted sockets inherit the sizes of the buffers. 0 means that of the system.
        """
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listening = _bound_socket(family, kind, protocol, address)
                if listening is None:
                    continue
                self._listening.append(listening)
                # The receive buffer must be set before the TCP handshake, which determines the window scale.
                if receive_buffer_bytes > 0:
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                if send_buffer_bytes > 0:
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if not self._listening:
                raise OSError(errno.EADDRNOTAVAIL, f"no address of {host} can be used on this system")
            for listening in self._listening:
                listening.listen(backlog)
        except OSError:
            self.close()
            raise
        self._start_accepting()

    def close(self) -> None:
        """Accept no more connections, and close those that are not open yet. Open connections stay open."""
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        while self._turns:
            self._turns.pop().close()

    def _start_accepting(self) -> None:
        self._pause = None
        if not self._is_accepting:
            self._is_accepting = True
            for listening in self._listening:
                self._loop.add_reader(listening, self._accept, listening)

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            for listening in self._listening:
                self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        turns = self._turns
        deadline = perf_counter() + ACCEPT_SECONDS
        for _ in range(ACCEPTS_PER_ITERATION):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._warn("no connection is accepted for %g s: %s", PAUSE_SECONDS, error)
                self._stop_accepting()
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._start_accepting)
                return
            if not self._admit_descriptor(accepted.fileno()):
                accepted.close()
            elif turns.take():
                self._open(accepted)
            else:
                turns.add(address[0], accepted)
                if len(turns) >= WAITING_MAX:
                    self._stop_accepting()
                    return
            if perf_counter() >= deadline:
                return

    def _open_waiting(self, accepted: socket.socket) -> None:
        self._open(accepted)
        if not self._is_accepting and self._pause is None and len(self._turns) < WAITING_MAX // 2:
            self._start_accepting()

    def _open(self, accepted: socket.socket) -> None:
        """Give a connection its transport and its protocol. `connection_made` is called in the next loop iteration."""
        accepted.setblocking(False)
        opening = self._loop.connect_accepted_socket(self._make_protocol, accepted)
        try:
            # A task would begin in a later loop iteration, after the time of this turn was measured.
            waiter = opening.send(None)
        except Exception:
            log.exception("an accepted connection is closed: it cannot be opened")
            accepted.close()
        else:
            waiter.add_done_callback(partial(_end_opening, opening))


def _end_opening(opening: Coroutine[Any, Any, object], _waiter: "asyncio.Future[None]") -> None:
    try:
        opening.send(None)
    except StopIteration:
        pass
    except Exception:
        log.exception("an accepted connection is closed: it cannot be opened")


def _bound_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket | None:
    """Return a socket that is bound to an address; None if the system does not support its family."""
    try:
        bound = socket.socket(family, kind, protocol)
    except OSError:
        return None
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # IPv4 has a socket of its own.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"error while attempting to bind on address {address}: {error.strerror}") from None
    return bound
