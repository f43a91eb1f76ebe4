"""Bridge: a process that serves rooms over HTTP, with their events on a Kafka cluster.

It has no logs of its own. Its data directory has users, keys, rights, and the settings of the rooms that it created.
"""

import asyncio
import gc
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kwire.access.audit.queue import AuditQueue
from kwire.access.authorizer import authorizer_of
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import LoginLimits
from kwire.access.principal_rules import certificate_principal
from kwire.access.quotas.meters import QuotaWindow
from kwire.access.quotas.quotas import Quotas
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.users.users import Users
from kwire.bridge.console import kafka_request_services, overview_services
from kwire.bridge.event_store import NumberedTopics, event_store_of, event_store_services
from kwire.bridge.groups import BridgeGroups
from kwire.bridge.kafka_requests.context import RequestServices
from kwire.bridge.kafka_requests.upstream import Upstream
from kwire.bridge.topics import topic_list_services, topic_services
from kwire.bridge.webhooks import BridgeWebhooks
from kwire.broker.topics.startup import NODE_KEY, open_metastore
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import Config
from kwire.config.access import AuditConfig
from kwire.config.tls import HTTP_LISTENER
from kwire.descriptors import Descriptors, current_limit
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import Unreachable
from kwire.kafka_client.settings import ClientSettings
from kwire.logs.start_report import ConnectionCounts
from kwire.metrics import LoopMetrics
from kwire.server.free_memory import FreeMemory
from kwire.server.http.port_services import port_services
from kwire.server.http.server import HttpServer
from kwire.server.stalls import StallProbe
from kwire.streams.events.publishing import Publisher
from kwire.streams.remote.directory import RemoteTopics, TopicMarks
from kwire.streams.remote.log import incarnation_of
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms.cleanup import RemoteCleanup
from kwire.streams.remote_rooms.count_retention import CountRetention
from kwire.streams.remote_rooms.records import RoomRecords
from kwire.streams.remote_rooms.rooms import RemoteRooms
from kwire.streams.remote_rooms.upstream_check import check_upstream
from kwire.streams.remote_topics.commands import RemoteTopicCommands
from kwire.streams.subscriptions import Subscriptions
from kwire.web.bridge.routes import bound_bridge_routes
from kwire.web.bridge.services import BridgeMonitoring, BridgeServices, UpstreamFacts
from kwire.web.db_events.event_sessions import EventSessions
from kwire.web.requests.authentication import Users as HttpUsers
from kwire.web.requests.authentication import authenticator_of
from kwire.web.services import AccessCounts, AccessServices, DbEventServices, RoomServices
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.reload import TlsReload

log = logging.getLogger("kwire.bridge")

# The time within which the cluster must have answered the requests of the start.
START_SECONDS: Final = 30.0


class Bridge:
    """A bridge process. It serves clients from `start` to `stop`."""

    def __init__(self, config: Config, upstream: ClientSettings) -> None:
        if config.http is None:
            raise ValueError("a bridge needs the address of its HTTP port: set --http")
        self.config = config
        self._address = config.http
        self._upstream = upstream
        self._lanes = DiskLanes()
        self._files = Files()
        self._descriptors = Descriptors(current_limit(), 0)
        self._store = LogDirectories([str(config.log.data_dir)], self._files, self._lanes)
        self._tls: TlsListener | None = None
        self._tls_reload: TlsReload | None = None
        self._is_ready = False
        # Who may log in, if not the users of the metadata store.
        self.http_users: HttpUsers | None = None

    async def start(self) -> None:
        """Raises KafkaError if the cluster cannot be used, and ValueError, OSError or StorageError otherwise."""
        await self._load_certificate()
        clock = SystemClock()
        self._store.lock()
        try:
            self._metastore = open_metastore(self._store, self._files, self._lanes, clock, starts_empty=False)
            if self._store.partition_folders or self._metastore.get(NODE_KEY) is not None:
                self._metastore.close()
                raise ValueError(
                    f"{self.config.log.data_dir} is the data directory of a server: set --data-dir to another one"
                )
        except BaseException:
            self._store.unlock_unchanged()
            self._lanes.close()
            raise
        self._cluster = Cluster(self._upstream)
        try:
            await self._check_upstream()
            await self._open(clock)
        except BaseException:
            self._cluster.close()
            self._close_files()
            raise

    async def _check_upstream(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                await check_upstream(self._cluster)
        except TimeoutError:
            raise Unreachable(f"the cluster did not answer within {START_SECONDS:g} s") from None

    async def _open(self, clock: SystemClock) -> None:
        loop, config = asyncio.get_running_loop(), self.config
        self._metastore.begin_expiry()
        self._logs = RemoteLogs(self._cluster, self._lanes.read)
        self._subscriptions = Subscriptions(clock, loop.call_soon, loop.call_later, config.rooms)
        # Changes and failed logins are logged. There is no topic of audit entries, so none are kept for it.
        self._audit = AuditQueue(AuditConfig(False, False, False, config.audit.retention_ms), clock)
        self._rooms = RemoteRooms(
            self._logs,
            RoomRecords(self._metastore),
            config.rooms,
            self._subscriptions,
            clock,
            self._audit,
            is_delete_allowed=config.topics.is_delete_allowed,
        )
        marks = TopicMarks()
        marks.is_room = lambda name, topic_id: self._rooms.records.has(name, incarnation_of(topic_id))
        self._topics = RemoteTopics(self._logs, marks)
        self._rooms.on_topic_change = self._topics.forget
        self._topics.on_use = self._rooms.mark_used
        self._groups = BridgeGroups(config, self._cluster, self._metastore, self._topics, self._audit, clock)
        self._topic_commands = RemoteTopicCommands(
            self._logs, self._topics, self._rooms, config.topics.partition_count, self._audit
        )
        self._event_store = event_store_of(
            *(self._logs, self._metastore, clock, self._topic_commands, marks, self._audit),
            config.events.bridge_topic,
        )
        self._count_retention = CountRetention(self._rooms, self._logs)
        self._cleanup = RemoteCleanup(
            self._rooms,
            self._logs,
            self._subscriptions,
            clock,
            is_enabled=config.rooms.is_bridge_cleanup,
            is_in_use=lambda topic: self._webhooks.may_have_any_in(topic) or self._groups.is_any_defined_for(topic),
        )
        loop_metrics = LoopMetrics()
        self._stalls = StallProbe(loop_metrics)
        self._free_memory = FreeMemory()
        services = self._services(clock, loop_metrics)
        self._free_memory.watch(lambda: services.rooms.port.memory.freed_bytes)
        await self._key_usage.start(config.web)
        self._keys.start(loop.call_later)
        await self._event_store.store.start()
        await self._webhooks.start()
        self.http = HttpServer(
            self._address,
            services.rooms.port,
            services.access,
            bound_bridge_routes(services),
            self._descriptors,
            self._tls,
        )
        gc.collect()
        try:
            await self.http.open()
        except BaseException:
            await self._stop_services()
            raise
        self._sampler.start()
        self._is_ready = True
        gc.freeze()

    def _services(self, clock: SystemClock, loop_metrics: LoopMetrics) -> BridgeServices:
        config, metastore = self.config, self._metastore
        audit = self._audit
        self._keys = Keys(metastore, clock, audit)
        self._users = Users(metastore, audit)
        self._key_usage = KeyUsage(metastore, clock, self._keys, config.node_id)
        self._authorizer = authorizer_of(config.access, metastore, audit, self._keys)
        self._quotas = Quotas(metastore, clock.monotonic, QuotaWindow(*config.quotas), audit)
        port = port_services(config, clock, self._quotas)
        publisher = Publisher(clock, asyncio.get_running_loop().call_soon)
        rooms = RoomServices(port, self._rooms, self._rooms, publisher, self._subscriptions)
        self.db_sessions = EventSessions(config.web.sessions_max)
        db_events = DbEventServices(port, rooms, self._key_usage, self._key_usage.slots, self.db_sessions)
        authenticator = authenticator_of(
            config.web.authentication,
            clock,
            self.http_users or self._users,
            certificate_principal,
            self._keys,
            audit,
            LoginLimits(clock),
        )
        self._webhooks = BridgeWebhooks(
            self._logs,
            NumberedTopics(self._topics, self._event_store.store),
            *(clock, config, self._descriptors, self._authorizer, audit, self._files, self._lanes.survey),
        )
        monitoring = BridgeMonitoring(
            port=port,
            rooms=rooms,
            db_events=db_events,
            upstream=self._facts,
            group_series=self._groups.series,
            is_ready=lambda: self._is_ready,
            loop_metrics=loop_metrics,
            descriptors=self._descriptors,
            audit=audit,
            access_counts=AccessCounts.of(self._users, self._keys, self._authorizer),
            webhook_statistics=self._webhooks.statistics,
            webhook_problem=lambda: self._webhooks.problem,
            event_store=self._event_store.store.facts,
        )
        overview = overview_services(monitoring)
        self._sampler = overview.sampler
        return BridgeServices(
            rooms=rooms,
            topics=topic_services(port, self._topics, self._topic_commands, self._event_store.store.topics, publisher),
            event_store=event_store_services(port, self._event_store, self._subscriptions),
            topic_list=topic_list_services(self._topics, self._rooms),
            webhooks=self._webhooks.services(),
            db_events=db_events,
            groups=self._groups.services(port, self._subscriptions),
            access=AccessServices(
                *(clock, self._authorizer, authenticator, audit, self._keys, self._key_usage, self._users),
                config.access.password_length_min,
            ),
            monitoring=monitoring,
            overview=overview,
            kafka_requests=kafka_request_services(
                port,
                RequestServices(
                    self._authorizer,
                    self._users,
                    self._quotas,
                    audit,
                    Upstream(self._cluster),
                    self._topics.forget,
                    self._event_store.store.topics.has_name,
                    is_delete_allowed=config.topics.is_delete_allowed,
                ),
            ),
            upstream=tuple(map(str, self._upstream.bootstrap)),
        )

    def _facts(self) -> UpstreamFacts:
        counters = self._cluster.counters
        return UpstreamFacts(
            connections=counters.open_count,
            connections_opened=counters.opened_count,
            connections_failed=counters.failed_count,
            sent_bytes=counters.sent_bytes,
            received_bytes=counters.received_bytes,
            waiting_bytes=self._logs.waiting_bytes,
            cache_bytes=self._logs.cache.used_bytes,
            open_logs=len(self._logs.open_logs()),
            trimmed_events=self._count_retention.trimmed_count,
            trim_failures=self._count_retention.failures,
            rooms_removed=self._cleanup.removed_count,
            cleanup_failures=self._cleanup.failures,
            group_members=self._groups.member_count,
            group_failures=self._groups.failures,
        )

    async def _load_certificate(self) -> None:
        if self.config.http_tls is not None:
            from kwire.server.tls.reload import TlsReload, load_listeners

            (self._tls,) = (await load_listeners({HTTP_LISTENER: self.config.http_tls}, self._lanes.survey)).values()
            self._tls_reload = TlsReload((self._tls,), self._lanes.survey)

    @property
    def connection_counts(self) -> ConnectionCounts:
        return ConnectionCounts(self._cluster.counters.open_count, self.http.connection_count)

    def addresses(self) -> Iterator[str]:
        """Yield the parts of the ready line."""
        yield f"http={self._address.host or '0.0.0.0'}:{self.http.port}"
        yield f"upstream={','.join(map(str, self._upstream.bootstrap))}"

    async def stop(self) -> int:
        """Answer the requests that were accepted, then close all objects. Returns 0, as no connection is aborted."""
        self._is_ready = False
        if self._tls_reload is not None:
            self._tls_reload.close()
        self._subscriptions.close()
        await self.http.end_streams()
        await self.http.close()
        await self._stop_services()
        self._cluster.close()
        self._close_files()
        return 0

    async def _stop_services(self) -> None:
        self._free_memory.close()
        self._stalls.close()
        await self._sampler.close()
        await self._webhooks.close()
        await self._cleanup.close()
        await self._count_retention.close()
        await self._rooms.close()
        await self._groups.close()
        await self._event_store.close()
        await self._topics.close()
        await self._logs.close()
        self._users.close()
        await self._key_usage.close()
        await self._keys.close()

    def _close_files(self) -> None:
        self._lanes.close()
        self._store.close()
        self._metastore.close()
