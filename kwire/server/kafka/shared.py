"""The state that all Kafka connections of this node share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from kwire.concurrency.chunking import schedule_chunk
from kwire.descriptors import Descriptors
from kwire.handlers.shared.context import Handler, Services
from kwire.metrics import ServerMetrics
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.outbox import Outbox
from kwire.server.kafka.rate_limited_log import RateLimitedLog
from kwire.server.kafka.routes import Route
from kwire.server.loop_budget import LoopBudget
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
        self.outbox = Outbox()
        self._loop = asyncio.get_running_loop()
        self.loop_budget = LoopBudget()
        self.rate_limited_log = RateLimitedLog(log)
        self.connections: set[KafkaConnection] = set()
        self.connections_by_host: Counter[str] = Counter()
        self.handshakes_by_host: Counter[str] = Counter()  # of TLS; they count against the limits of connections
        # The starved connections, in the order in which they became starved.
        self.starved: dict[KafkaConnection, None] = {}
        self._is_resuming = False
        self.memory.on_release = self._resume_starved_soon
        services.users.listen(self.revoke_users)
        services.keys.listen(self.revoke_keys)

    def revoke_users(self, names: frozenset[str]) -> None:
        """Close the connections of users that were changed or deleted."""
        for connection in tuple(self.connections):
            if connection.login is not None and connection.login.user in names:
                connection.revoke()

    def revoke_keys(self, ids: frozenset[str]) -> None:
        """Close the connections whose key is no longer valid."""
        for connection in tuple(self.connections):
            if connection.login is not None and connection.login.has_ended:
                connection.revoke()

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
