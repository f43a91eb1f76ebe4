"""The state that all Kafka connections of this node share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kwire.access.principal import Principal
from kwire.access.quotas.connection_rates import ConnectionRates
from kwire.access.sasl.login_queue import LoginQueue
from kwire.concurrency.chunking import schedule_chunk
from kwire.descriptors import Descriptors
from kwire.handlers.shared.context import Handler, Services
from kwire.metrics import ServerMetrics
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.login_turns import SUSPECT_TURN_INTERVAL_SECONDS, TURN_SECONDS, LoginTurns
from kwire.server.kafka.outbox import Outbox
from kwire.server.kafka.rate_limited_log import RateLimitedLog
from kwire.server.kafka.revocation import revoke
from kwire.server.kafka.routes import Route
from kwire.server.kafka.throttling import ConnectionQuota
from kwire.server.loop_budget import BUDGET_SECONDS, LoopBudget
from kwire.wire.frame import Account, ReceiveMemory
from kwire.wire.schema import Api

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

log = logging.getLogger("kwire.server")

# When memory was released, one chunk tries at most this many starved connections, and resumes at most this many.
TRIED_PER_CHUNK = 100
RESUMED_PER_CHUNK = 5


class Shared:
    """The state that all Kafka connections of this node share."""

    def __init__(
        self, handlers: Mapping[int, Handler], services: Services, metrics: ServerMetrics, descriptors: Descriptors
    ) -> None:
        self._loop = asyncio.get_running_loop()
        network = services.config.network
        self.routes = {key: Route(handler, metrics.requests[key]) for key, handler in handlers.items()}
        self.apis: dict[int, Api] = {key: handler.api for key, handler in handlers.items()}
        self.services = services
        self.metrics = metrics
        self.descriptors = descriptors
        self.network = network
        limit_bytes = network.requests_bytes_max if network.requests_bytes_max > 0 else 2**62
        self.memory = ReceiveMemory(limit_bytes, network.request_bytes_max)
        self.accounts: dict[str, Account] = {}
        self.large_requests = LargeRequests()
        self.login_queue = LoginQueue(services.login_limits)
        self._login_turns = LoginTurns(self._loop.call_soon)
        # Of clients whose addresses have failed too often.
        self._suspect_login_turns = LoginTurns(partial(self._loop.call_later, SUSPECT_TURN_INTERVAL_SECONDS))
        self.outbox = Outbox()
        self.loop_budget = LoopBudget()
        self.rate_limited_log = RateLimitedLog(log)
        self.connections: set[KafkaConnection] = set()
        self.connections_by_host: Counter[str] = Counter()
        self.handshakes_by_host: Counter[str] = Counter()  # of TLS; they count against the limits of connections
        # The starved connections, in the order in which they became starved.
        self.starved: dict[KafkaConnection, None] = {}
        self._is_resuming = False
        self.memory.on_release = self._resume_starved_soon
        # The connections of each principal that has authenticated.
        self.connections_by_principal: Counter[Principal] = Counter()
        self.limits = services.config.connections
        self.delayed_closes = 0
        self.connection_rates = ConnectionRates(services.quotas, services.clock.monotonic)
        services.users.listen(self.revoke_users)
        services.keys.listen(self.revoke_keys)
        services.quotas.listen(self._forget_quotas)

    def defer(self, connection: "KafkaConnection") -> None:
        """Handle further requests of a connection in a later loop iteration."""
        if not connection.is_logging_in:
            schedule_chunk(connection.serve_deferred)
        elif self.login_queue.is_over_budget(connection.client_host):
            self._suspect_login_turns.add(connection)
        else:
            self._login_turns.add(connection)

    def login_deadline(self, host: str) -> float:
        """Return the deadline of this loop iteration for requests of a client that is not logged in."""
        if self.login_queue.is_over_budget(host):
            return 0.0
        return self.loop_budget.start() - BUDGET_SECONDS + TURN_SECONDS

    def defer_suspect(self, connection: "KafkaConnection") -> bool:
        """If the address of a client has failed too often, read from its new connection in a later loop iteration.

        Returns whether it is read later.
        """
        is_suspect = self.login_queue.is_over_budget(connection.client_host)
        if is_suspect:
            self._suspect_login_turns.add(connection)
        return is_suspect

    def forget_deferred(self, connection: "KafkaConnection") -> None:
        """Forget a connection that was closed while its requests waited."""
        self._login_turns.discard(connection)
        self._suspect_login_turns.discard(connection)

    def quota_of(self, connection: "KafkaConnection", client_id: str | None) -> ConnectionQuota | None:
        """Return the quotas of a connection's client. A client that has not logged in yet has none."""
        quotas = self.services.quotas
        if not quotas.is_any_client or connection.views is None:
            return None
        if connection.login is not None and not connection.login.authentication.is_done:
            return None
        client = quotas.client(connection.views.access.principal.name, client_id or "")
        return None if client is None else ConnectionQuota(connection, client)

    def _forget_quotas(self) -> None:
        """Let every connection look up its quotas again. Called when quotas were changed."""
        for connection in self.connections:
            connection.forget_client()

    def revoke_users(self, names: frozenset[str]) -> None:
        """Close the connections of users that were changed or deleted."""
        for connection in tuple(self.connections):
            if connection.login is not None and connection.login.user in names:
                revoke(connection)

    def revoke_keys(self, ids: frozenset[str]) -> None:
        """Close the connections whose key is no longer valid."""
        for connection in tuple(self.connections):
            if connection.login is not None and connection.login.has_ended:
                revoke(connection)

    def _resume_starved_soon(self) -> None:
        """Let starved connections try again in the next loop iteration. Called when memory was released."""
        if self.starved and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._resume_starved)

    def _resume_starved(self) -> None:
        self._is_resuming = False
        left = RESUMED_PER_CHUNK
        for connection in tuple(islice(self.starved, TRIED_PER_CHUNK)):
            connection.try_reading()
            left -= not connection.reader.is_starved
            if not left:
                self._is_resuming = True
                schedule_chunk(self._resume_starved)
                return
