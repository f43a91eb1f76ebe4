"""Accepts TLS connections and bounds those whose handshake has not ended.

A connection counts against the limits of its port (connections, connections per address, descriptors) from the moment
it is accepted. In addition the number of handshakes and their duration are bounded. When there are too many, the oldest
handshake of the address that has most of them is closed. So clients of one address cannot keep those of others out, and
hardly each other: a real handshake ends soon.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from kwire.access.tls import TlsListener
from kwire.descriptors import descriptor_of
from kwire.server.tls.connection import TlsConnection

# The time from the accepted connection to the end of the handshake.
HANDSHAKE_SECONDS_MAX = 10.0
# The connections of a listener whose handshake has not ended.
HANDSHAKES_MAX = 1000
SWEEP_SECONDS = 1.0


class Admission(Protocol):
    """The limits of a port."""

    def admit_handshake(self, host: str, descriptor: int) -> bool:
        """Count a connection whose handshake begins. Returns False if a limit is reached."""

    def end_handshake(self, host: str) -> None:
        """Count the connection no longer: it is lost, or the connection above it is about to be admitted."""

    def warn(self, message: str, *details: object) -> None: ...


class TlsAcceptor:
    """The protocol factory of a listener with TLS."""

    def __init__(self, tls: TlsListener, admission: Admission, make_protocol: Callable[[], Any]) -> None:
        self.tls = tls
        self.make_protocol = make_protocol
        self._admission = admission
        # The connections whose handshake has not ended, and the time of each, oldest first.
        self._pending: dict[TlsConnection, float] = {}
        # The same connections by the client's address, oldest first.
        self._by_host: dict[str, dict[TlsConnection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> TlsConnection:
        return TlsConnection(self, self.tls.context)

    def admit(self, connection: TlsConnection, transport: Any) -> bool:
        if len(self._pending) >= HANDSHAKES_MAX:
            self._close_oldest()
        if not self._admission.admit_handshake(connection.host, descriptor_of(transport)):
            return False
        self._pending[connection] = monotonic()
        self._by_host.setdefault(connection.host, {})[connection] = None
        self.tls.pending_handshakes = len(self._pending)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return True

    def fail(self, connection: TlsConnection, reason: str) -> None:
        """Report a failed handshake. The connection is counted until it is lost."""
        self.tls.failed_handshakes += 1
        self.warn("the TLS handshake with %s on listener %s failed: %s", connection.host, self.tls.name, reason)

    def end(self, connection: TlsConnection) -> None:
        """The handshake has ended, or the connection is lost."""
        if self._pending.pop(connection, None) is not None:
            same_host = self._by_host[connection.host]
            del same_host[connection]
            if not same_host:
                del self._by_host[connection.host]
            self.tls.pending_handshakes = len(self._pending)
            self._admission.end_handshake(connection.host)

    def warn(self, message: str, *details: object) -> None:
        self._admission.warn(message, *details)

    def close(self) -> None:
        """Abort all handshakes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._pending):
            connection.abort()

    def _close_oldest(self) -> None:
        """Close the oldest handshake of the address that has most handshakes."""
        most: dict[TlsConnection, None] = max(self._by_host.values(), key=len)
        connection = next(iter(most))
        self.fail(connection, f"{HANDSHAKES_MAX} handshakes have not ended, and this is the oldest of its address")
        connection.abort()
        # The connection is lost in the next loop iteration. Its descriptor is free then.
        self.end(connection)

    def _sweep(self) -> None:
        expired_before = monotonic() - HANDSHAKE_SECONDS_MAX
        for connection, accepted_at in tuple(self._pending.items()):
            if accepted_at > expired_before:
                break
            self.fail(connection, f"it has taken more than {HANDSHAKE_SECONDS_MAX:g} seconds")
            connection.abort()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if self._pending else None
