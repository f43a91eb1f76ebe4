"""The listeners of the Kafka port accept connections. The sweep closes idle and stuck connections."""

import asyncio
import socket
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.access.audit.entries import CERTIFICATE
from kwire.access.audit.entries import KAFKA as KAFKA_PORT
from kwire.access.principal import ANONYMOUS, Principal
from kwire.access.principal_rules import certificate_principal
from kwire.access.sasl.authentication import SaslPolicy
from kwire.config import Listener
from kwire.descriptors import KAFKA
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.receive_pressure import ReceivePressure
from kwire.server.kafka.shared import Shared
from kwire.wire.frame import Account

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.acceptor import TlsAcceptor

SWEEP_SECONDS = 1.0


class KafkaListener:
    """One listener and its advertised address, if it has one. `tls` is None for a listener without TLS."""

    def __init__(
        self, listener: Listener, advertised: Listener | None, shared: Shared, tls: "TlsListener | None" = None
    ) -> None:
        self.listener = listener
        self.advertised = advertised
        self._shared = shared
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port on which the listener accepts connections. It differs from the configured port if that is 0."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def sasl_policy(self) -> SaslPolicy:
        """The current settings of SASL. A dynamic change applies to new connections."""
        sasl = self._shared.services.config.sasl
        listener = sasl.listeners[self.listener.name]
        return SaslPolicy(listener.mechanisms, listener.session_ms_max, sasl.failure_delay_ms)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        network = self._shared.network
        if self._tls is not None:
            from kwire.server.tls.acceptor import TlsAcceptor

            self._acceptor = TlsAcceptor(self._tls, self, self._connection)
        self._server = await loop.create_server(
            self._connection if self._acceptor is None else self._acceptor,
            self.listener.host or None,
            self.listener.port,
            backlog=network.backlog,
            reuse_address=True,
            start_serving=False,
        )
        for listening in self._server.sockets:
            # Accepted sockets inherit these sizes. The receive buffer must be set before the TCP handshake, because the
            # handshake determines the window scale.
            if network.receive_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, network.receive_buffer_bytes)
            if network.send_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, network.send_buffer_bytes)
        await self._server.start_serving()

    def close(self) -> None:
        """Accept no more connections. Open connections stay open."""
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.close()

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(self._shared, self)

    def admit(self, connection: KafkaConnection) -> bool:
        """Register a new connection. Returns False if a limit is reached.

        The limits are the number of connections, the number per client host, and the number of file descriptors.
        """
        host = connection.client_host
        if not self._is_within_limits(host, connection.descriptor):
            return False
        self._shared.connections.add(connection)
        self._shared.connections_by_host[host] += 1
        connection.reader.account = self._shared.accounts.setdefault(host, Account())
        self._shared.metrics.connections_accepted += 1
        self._shared.metrics.connections = len(self._shared.connections)
        return True

    def first_principal(self, transport: Any, host: str) -> Principal:
        """Return the principal of a new connection: that of its client certificate, if it has sent one.

        This is the login, unless the listener has SASL.
        """
        principal = None if self._tls is None else certificate_principal(transport)
        if principal is None:
            return ANONYMOUS
        if not self.listener.has_sasl:
            self._shared.services.audit.login(principal, host, KAFKA_PORT, CERTIFICATE)
        return principal

    def admit_handshake(self, host: str, descriptor: int) -> bool:
        """Count a connection whose TLS handshake begins. Returns False if a limit is reached."""
        if not self._is_within_limits(host, descriptor):
            return False
        self._shared.handshakes_by_host[host] += 1
        return True

    def end_handshake(self, host: str) -> None:
        by_host = self._shared.handshakes_by_host
        by_host[host] -= 1
        if not by_host[host]:
            del by_host[host]

    def warn(self, message: str, *details: object) -> None:
        self._shared.rate_limited_log.warning(message, *details)

    def _is_within_limits(self, host: str, descriptor: int) -> bool:
        """Return whether one more connection is allowed. Otherwise count and log the refusal."""
        network, shared = self._shared.network, self._shared
        handshakes = shared.handshakes_by_host
        if len(shared.connections) + handshakes.total() >= network.connections_max > 0:
            reason = f"max.connections={network.connections_max}"
        elif shared.connections_by_host[host] + handshakes[host] >= network.connections_per_ip_max > 0:
            reason = f"max.connections.per.ip={network.connections_per_ip_max}"
        elif not shared.descriptors.admit(KAFKA, descriptor):
            shared.metrics.connections_refused += 1
            return False
        else:
            return True
        shared.metrics.connections_refused += 1
        shared.rate_limited_log.warning("a connection from %s is refused: %s", host, reason)
        return False

    def leave(self, connection: KafkaConnection) -> None:
        self._shared.starved.pop(connection, None)
        if connection in self._shared.connections:
            self._shared.connections.discard(connection)
            host, by_host = connection.client_host, self._shared.connections_by_host
            by_host[host] -= 1
            if not by_host[host]:
                del by_host[host]
                del self._shared.accounts[host]
            self._shared.metrics.connections = len(self._shared.connections)


class Sweep:
    """Checks every connection once a second.

    Closes idle, stuck and slow connections and those that do not log in, and lets starved ones try to read again.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._pressure = ReceivePressure(shared)
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._run)

    def close(self) -> None:
        self._timer.cancel()

    def _run(self) -> None:
        network, metrics = self._shared.network, self._shared.metrics
        self._shared.rate_limited_log.end_round()
        now = perf_counter()
        self._pressure.check(now)
        idle_since = now - network.idle_ms_max / 1000 if network.idle_ms_max > 0 else float("-inf")
        stuck_since = now - network.send_timeout_ms / 1000
        for connection in tuple(self._shared.connections):
            connection.note_progress(now)
            if connection.stuck_since is not None and connection.stuck_since < stuck_since:
                # The responses of the connection keep file pages in use, or its request uses memory that others need.
                self._shared.rate_limited_log.warning(
                    "closing the connection from %s: no progress", connection.client_host
                )
                metrics.connections_failed += 1
                connection.abort()
            elif connection.gate is not None and connection.gate.is_overdue(now):
                self._shared.rate_limited_log.warning(
                    "closing the connection from %s: it has not logged in", connection.client_host
                )
                metrics.logins_failed += 1
                connection.abort()
            elif connection.active_at < idle_since and connection.is_quiet:
                metrics.connections_idled += 1
                connection.close()
            else:
                connection.try_reading()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._run)
