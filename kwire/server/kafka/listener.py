"""The listeners of the Kafka port accept connections. The sweep closes idle and stuck connections."""

import asyncio
from collections.abc import Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.access.audit.entries import CERTIFICATE
from kwire.access.audit.entries import KAFKA as KAFKA_PORT
from kwire.access.principal import ANONYMOUS, Principal
from kwire.access.principal_rules import certificate_principal
from kwire.access.quotas.connection_rates import Arrival
from kwire.access.sasl.authentication import SaslPolicy
from kwire.concurrency.chunking import schedule_chunk
from kwire.config import Listener
from kwire.config.connections import UNLIMITED, ListenerLimits
from kwire.config.setting import INT_MAX
from kwire.descriptors import KAFKA
from kwire.server.accept_queue import AcceptQueue
from kwire.server.bind_errors import naming_listener
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.receive_pressure import ReceivePressure
from kwire.server.kafka.revocation import revoke
from kwire.server.kafka.shared import Shared
from kwire.wire.frame import Account

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.acceptor import TlsAcceptor

SWEEP_SECONDS = 1.0
# The options that configure listeners, for errors.
LISTENER_OPTION = "--kafka or listeners"
# The maximum number of connections that one loop iteration checks. Each takes one or two microseconds.
SWEPT_PER_CHUNK = 200
# The maximum number of refused connections that are closed after a delay. Further ones are closed immediately.
DELAYED_CLOSES_MAX = 1_000


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
        self._accept_queue: AcceptQueue | None = None
        # The connections of this listener, and those whose TLS handshake has not ended.
        self._count = 0
        self._handshake_count = 0

    @property
    def port(self) -> int:
        """The port on which the listener accepts connections. It differs from the configured port if that is 0."""
        assert self._accept_queue is not None
        return self._accept_queue.port

    @property
    def address(self) -> str:
        """The host and port that clients connect to."""
        shown = self.advertised or self.listener
        return f"{shown.host or 'localhost'}:{shown.port or self.port}"

    @property
    def sasl_policy(self) -> SaslPolicy:
        """The current settings of SASL. A dynamic change applies to new connections."""
        sasl = self._shared.services.config.sasl
        listener = sasl.listeners[self.listener.name]
        return SaslPolicy(listener.mechanisms, listener.session_ms_max, sasl.failure_delay_ms)

    async def open(self) -> None:
        network = self._shared.network
        if self._tls is not None:
            from kwire.server.tls.acceptor import TlsAcceptor

            self._acceptor = TlsAcceptor(self._tls, self, self._connection)
        self._accept_queue = AcceptQueue(
            self._connection if self._acceptor is None else self._acceptor, self._admit_descriptor, self.warn
        )
        with naming_listener(str(self.listener), LISTENER_OPTION):
            await self._accept_queue.listen(
                self.listener.host or None,
                self.listener.port,
                network.backlog,
                network.receive_buffer_bytes,
                network.send_buffer_bytes,
            )

    def close(self) -> None:
        """Accept no more connections. Open connections stay open."""
        if self._accept_queue is not None:
            self._accept_queue.close()
        if self._acceptor is not None:
            self._acceptor.close()

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(self._shared, self)

    def admit(self, connection: KafkaConnection) -> bool:
        """Register a new connection, or close it and return False if a limit is reached.

        The limits are the number of connections, of this listener and per client host, the rate of new connections,
        and the number of file descriptors.
        """
        host = connection.client_host
        if not self._is_within_limits(host, connection.descriptor):
            connection.abort()
            return False
        if self._tls is None:
            arrival = self._arrival(host)
            if arrival.is_refused:
                self._refuse_later(connection, arrival.delay_s)
                return False
            if arrival.delay_s:
                # The event loop begins to read after this callback.
                asyncio.get_running_loop().call_soon(connection.mute, arrival.delay_s)
        self._count += 1
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
        """Count a connection whose TLS handshake begins. Returns False if a limit is reached.

        The rates of new connections count handshakes. One above the rate of the broker or listener is not delayed.
        """
        if not self._is_within_limits(host, descriptor):
            return False
        if self._arrival(host).is_refused:
            self._note_refusal(host, "its quota connection_creation_rate")
            return False
        self._shared.handshakes_by_host[host] += 1
        self._handshake_count += 1
        return True

    def end_handshake(self, host: str) -> None:
        self._handshake_count -= 1
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
        own_max = self._limits.connections_max
        per_ip_max = shared.limits.per_ip_overrides.get(host, network.connections_per_ip_max)
        if self._count + self._handshake_count >= own_max > 0:
            reason = f"max.connections={own_max} of listener {self.listener.name}"
        elif len(shared.connections) + handshakes.total() >= network.connections_max > 0:
            reason = f"max.connections={network.connections_max}"
        elif shared.connections_by_host[host] + handshakes[host] >= per_ip_max > 0:
            reason = f"max.connections.per.ip={per_ip_max}"
        else:
            return self._admit_descriptor(descriptor)
        self._note_refusal(host, reason)
        return False

    def _admit_descriptor(self, descriptor: int) -> bool:
        """Return whether a connection may keep its descriptor. Otherwise count and log the refusal."""
        is_admitted = self._shared.descriptors.admit(KAFKA, descriptor)
        self._shared.metrics.connections_refused += not is_admitted
        return is_admitted

    def _note_refusal(self, host: str, reason: str) -> None:
        self._shared.metrics.connections_refused += 1
        self._shared.rate_limited_log.warning("a connection from %s is refused: %s", host, reason)

    @property
    def _limits(self) -> ListenerLimits:
        return self._shared.limits.listeners.get(self.listener.name, UNLIMITED)

    def _arrival(self, host: str) -> Arrival:
        """Count a new connection against the rates of new connections."""
        shared = self._shared
        return shared.connection_rates.arrive(
            self.listener.name, host, shared.limits.creation_rate_max, self._limits.creation_rate_max, INT_MAX
        )

    def _refuse_later(self, connection: KafkaConnection, delay_s: float) -> None:
        """Close a connection after a delay, as Kafka does, so that its client does not try again immediately."""
        shared = self._shared
        self._note_refusal(connection.client_host, "its quota connection_creation_rate")
        if shared.delayed_closes < DELAYED_CLOSES_MAX:
            shared.delayed_closes += 1
            # uvloop may read once before it pauses. The connection has no login and no principal, so it serves nothing.
            connection.is_draining = True
            loop = asyncio.get_running_loop()
            loop.call_soon(connection.pause)
            loop.call_later(delay_s, self._close_refused, connection)
        else:
            connection.abort()

    def _close_refused(self, connection: KafkaConnection) -> None:
        self._shared.delayed_closes -= 1
        connection.abort()

    def count_principal(self, connection: KafkaConnection, principal: Principal) -> None:
        """Count a connection for the principal that it gets. It is closed soon if the principal has too many."""
        self._discount_principal(connection)
        if principal == ANONYMOUS:
            return
        counts, shared = self._shared.connections_by_principal, self._shared
        counts[principal] += 1
        if counts[principal] > shared.limits.per_principal_max:
            reason = f"kwire.max.connections.per.principal={shared.limits.per_principal_max} of {principal}"
            self._note_refusal(connection.client_host, reason)
            # The login that led here is still answered.
            asyncio.get_running_loop().call_soon(revoke, connection)

    def _discount_principal(self, connection: KafkaConnection) -> None:
        principal, counts = connection.principal, self._shared.connections_by_principal
        if principal is not None and principal != ANONYMOUS:
            counts[principal] -= 1
            if not counts[principal]:
                del counts[principal]

    def leave(self, connection: KafkaConnection) -> None:
        self._shared.starved.pop(connection, None)
        if self.listener.has_sasl:
            self._shared.forget_deferred(connection)
        if connection in self._shared.connections:
            self._shared.connections.discard(connection)
            self._count -= 1
            self._discount_principal(connection)
            host, by_host = connection.client_host, self._shared.connections_by_host
            by_host[host] -= 1
            if not by_host[host]:
                del by_host[host]
                del self._shared.accounts[host]
            self._shared.metrics.connections = len(self._shared.connections)


class Sweep:
    """Checks every connection about once a second, at most SWEPT_PER_CHUNK of them in one loop iteration.

    Closes idle, stuck and slow connections and those that do not log in, and lets starved ones try to read again.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._pressure = ReceivePressure(shared)
        self._is_closed = False
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._run)

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()

    def _run(self) -> None:
        self._shared.rate_limited_log.end_round()
        self._step(self._check_all(perf_counter()))

    def _step(self, steps: Generator[None, None, None]) -> None:
        """Check the connections of one chunk, and schedule the next chunk or the next sweep."""
        try:
            next(steps)
        except StopIteration:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._run)
        else:
            schedule_chunk(partial(self._continue, steps))

    def _continue(self, steps: Generator[None, None, None]) -> None:
        if not self._is_closed:
            self._step(steps)

    def _check_all(self, now: float) -> Generator[None, None, None]:
        network, metrics = self._shared.network, self._shared.metrics
        idle_since = now - network.idle_ms_max / 1000 if network.idle_ms_max > 0 else float("-inf")
        stuck_since = now - network.send_timeout_ms / 1000
        left = SWEPT_PER_CHUNK
        for connection in tuple(self._shared.connections):
            if not left:
                left = SWEPT_PER_CHUNK
                yield
            left -= 1
            if connection not in self._shared.connections:
                continue  # it was closed since the sweep began
            self._pressure.observe(connection, now)
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
        self._pressure.end_round(now)
