"""The state that all Kafka connections of this node share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kwire.access.principal import ANONYMOUS, Principal
from kwire.access.quotas.connection_rates import ConnectionRates
from kwire.access.sasl.login_queue import LoginQueue
from kwire.access.usage.client_limits import ClientLimits
from kwire.concurrency.chunking import schedule_chunk
from kwire.descriptors import Descriptors
from kwire.handlers.shared.context import Handler, Services
from kwire.handlers.shared.views import Views
from kwire.logs.rate_limited_log import RateLimitedLog
from kwire.metrics import ServerMetrics
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.outbox import Outbox
from kwire.server.kafka.revocation import revoke
from kwire.server.kafka.routes import Route
from kwire.server.kafka.throttling import ConnectionQuota
from kwire.server.loop_budget import BUDGET_SECONDS, LoopBudget
from kwire.server.network_turns import TURN_SECONDS, NetworkTurns
from kwire.wire.frame import Account, ReceiveMemory
from kwire.wire.schema import Api

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

log = logging.getLogger("kwire.server")

# When memory was released, one chunk tries at most this many starved connections, and resumes at most this many.
TRIED_PER_CHUNK = 100
RESUMED_PER_CHUNK = 5
# The maximum number of connections of one turn whose clients are not logged in. TURN_SECONDS is also the part of a loop
# iteration's budget in which their requests are handled without waiting.
LOGINS_PER_TURN = 10
# The time between two turns of clients whose addresses have failed too often.
SUSPECT_TURN_INTERVAL_SECONDS = 0.005


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
        # The connections of clients that are not logged in and whose requests wait. The newest of a network is next,
        # because many of those that wait for long are abandoned.
        self._login_turns = self._turns(self._loop.call_soon)
        # Of clients whose addresses have failed too often. They always wait.
        self._suspect_login_turns = self._turns(partial(self._loop.call_later, SUSPECT_TURN_INTERVAL_SECONDS))
        self.outbox = Outbox()
        self.loop_budget = LoopBudget()
        self.rate_limited_log = RateLimitedLog(log)
        self.connections: set[KafkaConnection] = set()
        self.connections_by_host: Counter[str] = Counter()
        # The numbers of connections, which identify them in the log.
        self.connection_numbers = count(1)
        self.handshakes_by_host: Counter[str] = Counter()  # of TLS; they count against the limits of connections
        # The starved connections, in the order in which they became starved.
        self.starved: dict[KafkaConnection, None] = {}
        self._is_resuming = False
        self.memory.on_release = self._resume_starved_soon
        # The connections of each principal that has authenticated.
        self.connections_by_principal: Counter[Principal] = Counter()
        # The views of clients that have not authenticated, by host.
        self._anonymous_views: WeakValueDictionary[str, Views] = WeakValueDictionary()
        self.limits = services.config.connections
        self.delayed_closes = 0
        self.connection_rates = ConnectionRates(services.quotas, services.clock.monotonic)
        services.users.listen(self.revoke_users)
        services.keys.listen(self.revoke_keys)
        services.quotas.listen(self._forget_quotas)

    def _turns(self, schedule: Callable[[Callable[[], None]], object]) -> "NetworkTurns[KafkaConnection]":
        return NetworkTurns(schedule, _serve_deferred, LOGINS_PER_TURN, is_newest_first=True)

    def defer(self, connection: "KafkaConnection") -> None:
        """Handle further requests of a connection in a later loop iteration."""
        if not connection.is_logging_in:
            schedule_chunk(connection.serve_deferred)
        elif self.login_queue.is_over_budget(connection.client_host):
            self._suspect_login_turns.add(connection.client_host, connection)
        else:
            self._login_turns.add(connection.client_host, connection)

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
            self._suspect_login_turns.add(connection.client_host, connection)
        return is_suspect

    def forget_deferred(self, connection: "KafkaConnection") -> None:
        """Forget a connection that was closed while its requests waited."""
        self._login_turns.discard(connection.client_host, connection)
        self._suspect_login_turns.discard(connection.client_host, connection)

    def views_of(self, principal: Principal, host: str) -> Views:
        """Return the views of a client.

        Connections of a host share the views of ANONYMOUS. Otherwise they were half of the objects of a connection that
        is not logged in, and the garbage collector visits them all when thousands of connections are opened at once.
        """
        views = self._anonymous_views.get(host) if principal == ANONYMOUS else None
        if views is None:
            views = Views(self.services, self.services.authorizer.access(principal, host))
            if principal == ANONYMOUS:
                self._anonymous_views[host] = views
        return views

    def quota_of(self, connection: "KafkaConnection", client_id: str | None) -> ConnectionQuota | None:
        """Return the quotas of a connection's client. A client that has not logged in yet has none."""
        quotas = self.services.quotas
        if not quotas.is_any_client or connection.views is None:
            return None
        if connection.login is not None and not connection.login.authentication.is_done:
            return None
        client = quotas.client(connection.views.access.principal.name, client_id or "")
        return None if client is None else ConnectionQuota(connection, client)

    def limits_of(self, principal: Principal) -> ClientLimits | None:
        """Return the limits of published events of a client's key; None if there are none."""
        limits = self.services.key_usage.limits_of(principal)
        return limits if limits is not None and limits.is_publishing_limited else None

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
        """Close the connections whose key is no longer valid. The others look up the limits of their key again."""
        for connection in tuple(self.connections):
            if connection.login is not None and connection.login.has_ended:
                revoke(connection)
            elif connection.principal is not None and connection.principal.name in ids:
                connection.forget_client()

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


def _serve_deferred(connection: "KafkaConnection") -> None:
    connection.serve_deferred()
