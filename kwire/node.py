"""The node creates, connects, starts and stops the objects of the server."""

import asyncio
import gc
import importlib
import os
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from kwire.access.audit.queue import AuditQueue
from kwire.access.authorizer import Authorizer, authorizer_of
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import LoginLimits
from kwire.access.principal_rules import certificate_principal
from kwire.access.quotas.meters import QuotaWindow
from kwire.access.quotas.quotas import Quotas
from kwire.access.sasl.salt_secret import salt_secret
from kwire.access.secrets.node_keys import NodeKeys
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.users.users import Users
from kwire.broker.admin.disk_space import DiskSpace
from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.broker.admin.features import TRANSACTION_VERSION, Features
from kwire.broker.admin.lag import Lags
from kwire.broker.admin.log_dirs import LogDirs
from kwire.broker.admin.metadata_log import MetadataLog
from kwire.broker.admin.producer_ids import ProducerIds
from kwire.broker.admin.segments import Segments
from kwire.broker.batch_validation import Validated, ValidationWorker
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.fetch.sessions import FetchSessions
from kwire.broker.maintenance.disk_space import DiskSpaceWatch
from kwire.broker.maintenance.services import MaintenanceServices
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.topics.full_disk import commit_with_reserve
from kwire.broker.topics.startup import NODE_KEY, check_folders, check_metadata, open_metastore, recover_logs, register
from kwire.broker.topics.stored_sizes import StoredSizes
from kwire.broker.topics.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topics
from kwire.clock import Clock, SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.concurrency.work_allowance import WorkAllowance
from kwire.config import Address, Config
from kwire.config.resources.topic import TopicSettings
from kwire.config.tls import HTTP_LISTENER
from kwire.coordinator.group.consumer.configured_settings import ConfiguredGroupSettings
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.definitions import DefinedGroupSettings, GroupDefinitions
from kwire.coordinator.group.settings import settings_of
from kwire.coordinator.group.topics_view import CatalogueView
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.coordinator.transaction.admission import TransactionAdmission
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.marker_appender import MarkerAppender
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.descriptors import Descriptors, current_limit
from kwire.handlers import HANDLERS
from kwire.handlers.shared.audited import audited
from kwire.handlers.shared.context import Handler, NodeFacts, Services
from kwire.logs.start_report import ConnectionCounts
from kwire.metrics import LoopMetrics, ServerMetrics
from kwire.server.free_memory import FreeMemory
from kwire.server.kafka.draining import abort_connections, drain_connections
from kwire.server.kafka.listener import KafkaListener, Sweep
from kwire.server.kafka.shared import Shared
from kwire.server.stalls import StallProbe
from kwire.server.start_report import connection_counts, start_report
from kwire.streams.audit.writer import AuditWriter
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.event_store.files.live import LiveFiles
from kwire.streams.event_store.schemas.payload_checks import SchemaChecks
from kwire.streams.event_store.schemas.worker import SchemaWorker
from kwire.streams.local import LocalLog
from kwire.streams.rooms.saved_activity import load_activity, save_activity
from storage.batch.record_batch import BatchHeader
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.http.server import HttpServer
    from kwire.server.outbound.webhook_delivery import WebhookDelivery
    from kwire.server.tls.reload import TlsReload
    from kwire.streams.rooms.rooms import Rooms
    from kwire.streams.subscriptions import Subscriptions
    from kwire.web.requests.authentication import CertificatePrincipal
    from kwire.web.requests.authentication import Users as HttpUsers

# Modules that are imported in a thread after the Kafka port is open. HTTP_MODULE imports ROOMS_MODULE.
ROOMS_MODULE = "kwire.streams.rooms.cleanup"
HTTP_MODULE = "kwire.server.http.server"
SCRAM_MODULE = "scramp"
NATIVE_CALLS_MODULES = ("storage.segment.residency", "storage.disk.allocation")


class Node:
    """A server process. It serves clients from `start` to `stop`."""

    def __init__(self, config: Config, files: Files | None = None, handlers: Mapping[int, Handler] = HANDLERS) -> None:
        """`files` and `handlers` are replaced by test servers, which inject faults."""
        self.config = config
        self._lanes = DiskLanes()
        self._files = files or Files()
        self._handlers = handlers
        self._descriptors = Descriptors(current_limit(), config.log.open_max)
        self._is_ready = False
        # TLS of the listeners that have it, by their names. HTTP_LISTENER is in lower case, unlike other names.
        self._tls: dict[str, TlsListener] = {}
        self._tls_reload: TlsReload | None = None
        self.http: HttpServer | None = None
        # Who may log in over HTTP, if not the users of the metadata store; and the principal of a client certificate.
        self.http_users: HttpUsers | None = None
        self.certificate_principal: CertificatePrincipal = certificate_principal
        self._webhooks: WebhookDelivery | None = None
        # Closes what was opened, the newest first: at a stop, and when a start fails.
        self._closings = AsyncExitStack()
        self._store = LogDirectories(
            [str(path) for path in config.log.data_dirs], self._files, self._lanes, config.log.reserve_bytes
        )

    async def start(self) -> None:
        """Serve clients. If that fails, the data directory is left as a start that was never tried would find it."""
        await self._load_certificates()
        self._descriptors.report(self.config.log.open_max)
        clock = SystemClock()
        self._audit = AuditQueue(self.config.audit, clock)
        self._cold_reads = ColdReads(self._lanes.read)
        self._store.lock()
        try:
            topics = await self._open_catalogue(clock)
        except BaseException:
            self._store.unlock_unchanged()
            raise
        # After a start that fails, a new directory has nothing to recover, and others need what they needed before.
        self._close_store = self._store.close if topics.leader_epoch == 0 else self._store.unlock_unchanged
        try:
            await self._open(topics, clock)
        except BaseException:
            await self._closings.aclose()
            raise
        self._close_store = self._store.close

    async def _open(self, topics: Topics, clock: Clock) -> None:
        closings = self._closings
        closings.callback(self._metastore.close)
        closings.callback(lambda: self._close_store())
        closings.callback(self._lanes.close)
        closings.callback(self._syncs.close)
        self._node_keys = NodeKeys.of_node(self.config, self._metastore, self._files, self._lanes.survey)
        cluster_id, directory_id = await self._register()
        closings.push_async_callback(topics.marks.idle)
        # This start has removed what the last stop saved. RoomCleanup takes over when there are rooms.
        self._save_activity = partial(save_activity, self._metastore, self._fetched_before)
        closings.push_async_callback(lambda: self._save_activity())
        closings.callback(self._cold_reads.close)
        leader_epoch = topics.leader_epoch
        self._recovery = await recover_logs(topics, self._store, self._syncs)
        self._schema_worker = SchemaWorker()
        closings.push_async_callback(self._schema_worker.close)
        self._validation = ValidationWorker()
        closings.push_async_callback(self._validation.close)
        self.event_topics = EventTopics(topics, self._metastore, self._schema_worker.run, self._audit)
        audit_writer = AuditWriter(self._audit, topics, clock, self.config.audit.retention_ms)
        audit_writer.start(self._metastore)
        checks = SchemaChecks(self.event_topics.schemas_and_revision, self._schema_worker.run)
        self.event_store = EventStore(topics, self._metastore, clock, self._syncs, checks)
        await self.event_store.open()
        self._maintenance = MaintenanceServices.build(
            *(self._configs.config.log, topics, clock, self._syncs, self._descriptors),
            *(self._lanes.delete, self._store, self._files),
        )
        closings.push_async_callback(self._maintenance.close)
        closings.callback(DiskSpaceWatch(self._store, self._lanes.survey).close)
        self.event_files = None
        if self.config.events.files_dir is not None:
            # The owner of the files is the id of the journal's directory, not the cluster id. A node that has lost its
            # catalogue gets a new directory id, and so does not use the old files.
            self.event_files = await LiveFiles.open(
                os.path.abspath(self.config.events.files_dir),
                *(directory_id.hex(), topics, self._metastore, self.event_topics),
            )
            closings.push_async_callback(self.event_files.close)
        # The event store is closed before the files are, which need the events that are published until then.
        closings.push_async_callback(self.event_store.close)
        closings.push_async_callback(audit_writer.close)
        definitions = GroupDefinitions(self._metastore)
        groups = GroupCoordinator(
            log=InternalTopicLog(topics, OFFSETS_TOPIC, self._cold_reads),
            clock=clock,
            call_later=asyncio.get_running_loop().call_later,
            call_soon=asyncio.get_running_loop().call_soon,
            settings=settings_of(self.config.groups, topics.get(OFFSETS_TOPIC)),
            topics=CatalogueView(topics.catalogue),
            consumer_settings=DefinedGroupSettings(definitions, ConfiguredGroupSettings(self._configs)),
        )
        handlers = audited(self._handlers, self._audit)
        apis = {key: handler.api for key, handler in handlers.items()}
        features = Features(self._metastore, apis)
        await features.register()
        closings.callback(groups.close)
        markers = MarkerAppender(topics, groups, asyncio.get_running_loop().call_soon)
        transactions = self._build_transactions(topics, markers, features, clock)
        closings.callback(transactions.close)
        keys = Keys(self._metastore, clock, self._audit)
        closings.push_async_callback(keys.close)
        self._key_usage = KeyUsage(self._metastore, clock, keys, self.config.node_id)
        closings.push_async_callback(self._key_usage.close)
        services = Services(
            apis=apis,
            node=NodeFacts(self.config.node_id, cluster_id, self.config.rack),
            configs=self._configs,
            clock=clock,
            topics=topics,
            producer_ids=ProducerIds(self._metastore),
            features=features,
            metadata_log=MetadataLog(self._metastore, leader_epoch, directory_id),
            groups=groups,
            transactions=transactions,
            transaction_admission=TransactionAdmission(transactions),
            markers=markers,
            cold_reads=self._cold_reads,
            fetch_sessions=FetchSessions(clock, self.config.network.fetch_session_slots),
            relocations=self._maintenance.relocations,
            log_dirs=LogDirs(topics, self._store, self._maintenance.relocations, self._files),
            event_store=self.event_store,
            validation=self._validation,
            work_allowance=WorkAllowance(),
            authorizer=authorizer_of(self.config.access, self._metastore, self._audit, keys),
            users=Users(self._metastore, self._audit, await salt_secret(self.config.sasl, self._node_keys)),
            login_limits=LoginLimits(clock),
            keys=keys,
            quotas=Quotas(self._metastore, clock.monotonic, QuotaWindow(*self.config.quotas), self._audit),
            key_usage=self._key_usage,
            audit=self._audit,
        )
        closings.callback(services.users.close)
        server_metrics = ServerMetrics({key: api.name for key, api in apis.items()})
        self._shared = Shared(handlers, services, server_metrics, self._descriptors)
        self._configs.listen(topics.reconfigure)
        self._configs.listen(self._reconfigure)
        # A full garbage collection takes long, so it runs before the server accepts clients.
        gc.collect()
        loop_metrics = LoopMetrics()
        self._stalls = StallProbe(loop_metrics)
        closings.callback(self._stalls.close)
        self._sweep = Sweep(self._shared)
        closings.callback(self._sweep.close)
        self._free_memory = FreeMemory()
        closings.callback(self._free_memory.close)
        self._free_memory.watch(self._shared.large_requests.freed_bytes)
        advertised = {one.name: one for one in self.config.advertised_listeners}
        self.kafka_listeners = [
            KafkaListener(one, advertised.get(one.name), self._shared, self._tls.get(one.name))
            for one in self.config.listeners
        ]
        if self.config.sasl.listeners:
            # The import would block the event loop at the first login.
            await asyncio.to_thread(importlib.import_module, SCRAM_MODULE)
        closings.callback(self.drop_connections)
        for listener in self.kafka_listeners:
            closings.callback(listener.close)
            await listener.open()
        # Importing aiohttp takes longer than the rest of the start. The Kafka port is open, so its clients do not wait.
        await asyncio.to_thread(importlib.import_module, ROOMS_MODULE if self.config.http is None else HTTP_MODULE)
        # A sync of many files needs these modules. A later import could fail because no file descriptor is free.
        for module in NATIVE_CALLS_MODULES:
            await asyncio.to_thread(importlib.import_module, module)
        self._subscriptions, rooms = self._build_rooms(topics, groups, definitions, clock)
        if self.config.webhooks.is_enabled:
            await self._open_webhooks(topics, clock, services.authorizer)
        await self._key_usage.start(self.config.web)
        if self.config.http is not None:
            await self._open_http(self.config.http, services, definitions, rooms, loop_metrics)
        keys.start(asyncio.get_running_loop().call_later)
        self._is_ready = True
        self.start_report = start_report(
            self.config,
            topics.catalogue.counts(),
            len(services.users),
            self._recovery,
            self.kafka_listeners,
            self.http,
            is_first_start=leader_epoch == 0,
        )
        groups.load()
        transactions.load()
        self._maintenance.relocations.resume_soon()
        metadata_check = asyncio.create_task(check_metadata(topics, self._store))
        closings.callback(metadata_check.cancel)
        # Most objects that exist now are used until the server stops, so garbage collections need not visit them.
        gc.freeze()

    async def _load_certificates(self) -> None:
        """Load the certificates of all listeners with TLS, before anything else. Raises ValueError."""
        configs = {**self.config.tls, **({HTTP_LISTENER: self.config.http_tls} if self.config.http_tls else {})}
        if configs:
            from kwire.server.tls.reload import TlsReload, load_listeners

            self._tls = await load_listeners(configs, self._lanes.survey)
            self._tls_reload = TlsReload(tuple(self._tls.values()), self._lanes.survey)

    def _build_transactions(
        self, topics: Topics, markers: MarkerAppender, features: Features, clock: Clock
    ) -> TransactionCoordinator:
        known = topics.get(TRANSACTIONS_TOPIC)
        return TransactionCoordinator(
            log=InternalTopicLog(topics, TRANSACTIONS_TOPIC, self._cold_reads),
            clock=clock,
            call_later=asyncio.get_running_loop().call_later,
            settings=TransactionSettings.of(self.config.transactions, len(known.partitions) if known else None),
            write_markers=markers.write_all,
            transaction_version=lambda: features.level(TRANSACTION_VERSION),
            coordinator_epoch=topics.leader_epoch,
        )

    async def _open_webhooks(self, topics: Topics, clock: Clock, authorizer: Authorizer) -> None:
        module = await asyncio.to_thread(importlib.import_module, "kwire.server.outbound.webhook_delivery")
        from kwire.streams.local_directory import LocalDirectory
        from kwire.streams.local_webhooks import local_webhook_storage

        config, call_later = self.config.webhooks, asyncio.get_running_loop().call_later
        self._webhooks = module.WebhookDelivery(
            LocalDirectory(topics, self.config),
            local_webhook_storage(topics, self._metastore, self._node_keys, clock, call_later, config),
            *(clock, config, self._descriptors, authorizer, self._audit),
        )
        await self._webhooks.open()
        self._closings.push_async_callback(self._webhooks.close)

    async def _open_http(
        self,
        address: Address,
        services: Services,
        definitions: GroupDefinitions,
        rooms: "Rooms",
        loop_metrics: LoopMetrics,
    ) -> None:
        from kwire.coordinator.group_reports import LocalGroupReports
        from kwire.coordinator.web_groups.local import LocalWebGroups
        from kwire.coordinator.web_groups.values import defaults_of
        from kwire.server.admin import admin_services
        from kwire.server.http.port_services import port_services
        from kwire.server.http.server import HttpServer
        from kwire.server.kafka.http_requests import HttpRequests
        from kwire.streams.events.partitioning import Partitioner
        from kwire.streams.events.publishing import Publisher
        from kwire.streams.local_commands import local_commands
        from kwire.streams.local_directory import LocalDirectory
        from kwire.web.browse.scan_slots import ScanSlots
        from kwire.web.console.node_load import NodeLoad, Sample
        from kwire.web.console.sampler import Sampler
        from kwire.web.db_events.event_sessions import EventSessions
        from kwire.web.requests.authentication import authenticator_of
        from kwire.web.routes import bound_routes
        from kwire.web.services import (
            AccessCounts,
            AccessServices,
            DbEventServices,
            EventStoreServices,
            GroupServices,
            KafkaRequestServices,
            MonitoringServices,
            OverviewServices,
            RoomServices,
            SegmentServices,
            StorageServices,
            TopicServices,
            WebhookServices,
            WebServices,
        )

        topics, groups, clock = services.topics, services.groups, services.clock
        webhooks = self._webhooks.webhooks if self._webhooks is not None else None
        commands = local_commands(topics, self.event_store, self.event_topics, rooms, webhooks)
        publisher = Publisher(clock, asyncio.get_running_loop().call_soon)
        directory = LocalDirectory(topics, self.config)
        lags = Lags(topics, self._store, self._files, self._cold_reads, clock)
        reports = LocalGroupReports(groups, lags, topics.catalogue.name_of)
        port = port_services(self.config, clock, services.quotas)
        room_services = RoomServices(
            port=port, rooms=rooms, commands=commands.rooms, publisher=publisher, subscriptions=self._subscriptions
        )
        self.db_sessions = EventSessions(self.config.web.sessions_max)
        db_events = DbEventServices(port, room_services, self._key_usage, self._key_usage.slots, self.db_sessions)
        authenticator = authenticator_of(
            self.config.web.authentication,
            clock,
            self.http_users or services.users,
            self.certificate_principal,
            services.keys,
            services.audit,
            services.login_limits,
        )
        monitoring = MonitoringServices(
            port=port,
            storage=StorageServices(
                topics=topics,
                stored_sizes=StoredSizes(topics, self._store, self._files),
                maintenance=self._maintenance,
                disk_space=DiskSpace(self._store, self._lanes.survey),
                cold_reads=lambda: self._cold_reads.count,
                offline_directories=lambda: len(self._store.offline_dirs),
            ),
            rooms=room_services,
            db_events=db_events,
            reports=reports,
            lags=lags,
            kafka_address=lambda: self.kafka_listeners[0].address,
            is_ready=lambda: self._is_ready,
            server_metrics=self._shared.metrics,
            loop_metrics=loop_metrics,
            fetch_sessions=services.fetch_sessions,
            transactions=services.transactions,
            descriptors=self._descriptors,
            audit=self._audit,
            access_counts=AccessCounts.of(services.users, services.keys, services.authorizer),
            webhook_statistics=webhooks.statistics if webhooks is not None else None,
            event_files=self.event_files.sink if self.event_files is not None else None,
            tls=tuple(self._tls.values()),
            quotas=services.quotas,
        )
        web = WebServices(
            port=port,
            rooms=room_services,
            topics=TopicServices(
                *(port, directory, commands.topics, publisher, Partitioner(), self.event_topics, ScanSlots()),
                last_retention_ms=lambda: self._maintenance.retention.last_round_ms,
                has_message_limits=True,
            ),
            segments=SegmentServices(port, directory, Segments(topics, self._lanes.survey, self._files)),
            groups=GroupServices(
                port=port,
                reports=reports,
                web_groups=LocalWebGroups(
                    *(groups, definitions, directory, topics.offsets_topic, clock),
                    *(defaults_of(self.config.rest_groups), self._audit),
                ),
                subscriptions=self._subscriptions,
            ),
            event_store=EventStoreServices(
                port=port,
                event_store=self.event_store,
                event_topics=self.event_topics,
                commands=commands.events,
                topic_commands=commands.event_topics,
                subscriptions=self._subscriptions,
            ),
            webhooks=WebhookServices(clock=clock, commands=lambda: commands.webhooks),
            monitoring=monitoring,
            overview=OverviewServices(monitoring, load := NodeLoad(monitoring), Sampler(Sample, load)),
            access=AccessServices(
                *(clock, services.authorizer, authenticator, services.audit),
                *(services.keys, self._key_usage, services.users, self.config.access.password_length_min),
            ),
            quotas=services.quotas,
            db_events=db_events,
            admin=admin_services(
                *(port, services, self._store, self._metastore, self._files, self._descriptors, self.kafka_listeners),
                *(lambda: self._is_ready, tuple(self._tls.values())),
            ),
            kafka_requests=KafkaRequestServices(port, HttpRequests(self._shared, self.kafka_listeners)),
        )
        self._closings.push_async_callback(web.admin.snapshots.close)
        self._free_memory.watch(lambda: port.memory.freed_bytes)
        self.http = HttpServer(
            address, port, web.access, bound_routes(web), self._descriptors, self._tls.get(HTTP_LISTENER)
        )
        self.http.reconfigure(self._configs.config)
        self._closings.push_async_callback(self.http.close)
        await self.http.open()
        self._closings.push_async_callback(web.overview.sampler.close)
        web.overview.sampler.start()

    def _build_rooms(
        self, topics: Topics, groups: GroupCoordinator, definitions: GroupDefinitions, clock: Clock
    ) -> "tuple[Subscriptions, Rooms]":
        from kwire.streams.rooms.cleanup import RoomCleanup
        from kwire.streams.rooms.rooms import Rooms
        from kwire.streams.subscriptions import Subscriptions

        loop, config = asyncio.get_running_loop(), self.config
        subscriptions = Subscriptions(clock, loop.call_soon, loop.call_later, config.rooms)
        rooms = Rooms(topics, config.rooms, subscriptions, is_delete_allowed=config.topics.is_delete_allowed)

        def is_in_use(topic: str) -> bool:
            # Consumer groups and webhooks have stored positions in a topic, even while they do not read it.
            if definitions.has_topic(topic) or groups.has_offsets_in(topic):
                return True
            return self._webhooks is not None and self._webhooks.webhooks.has_any_in(topic)

        self._room_cleanup = RoomCleanup(
            rooms, topics, subscriptions, clock, self._store, self._files, is_in_use, self._fetched_before
        )
        self._closings.callback(self._room_cleanup.close)
        self._save_activity = partial(self._room_cleanup.save_activity, self._metastore)
        return subscriptions, rooms

    def _reconfigure(self, config: Config) -> None:
        """Apply a new configuration to the objects that have a copy of a part of it."""
        self._shared.network = config.network
        self._shared.limits = config.connections
        for name, listener in self._tls.items():
            tls = config.http_tls if name == HTTP_LISTENER else config.tls[name]
            if tls is not None:
                listener.reconfigure(tls)
        if self.http is not None:
            self.http.reconfigure(config)
        self._maintenance.reconfigure(config.log)
        self._store.cordoned_dirs = config.log.cordoned_dirs

    @property
    def connection_counts(self) -> ConnectionCounts:
        return connection_counts(self._shared, self.http)

    async def stop(self) -> int:
        """Answer the requests that were accepted, then close all objects cleanly. The next start needs no recovery.

        Returns the number of Kafka connections that did not end in time.
        """
        self._is_ready = False
        if self._tls_reload is not None:
            self._tls_reload.close()
        for listener in self.kafka_listeners:
            listener.close()
        for connection in tuple(self._shared.connections):
            connection.drain()
        # Requests that wait for records are answered now. Closing the coordinators below answers group members that
        # wait. These members then look for another coordinator.
        self._subscriptions.close()
        self._shared.services.topics.wake_readers()
        if self.http is not None:
            # End the streams before the coordinators are closed, because streams of groups now commit their offsets.
            await self.http.end_streams()
        self._shared.services.transactions.close()
        self._shared.services.groups.close()
        aborted_count = await drain_connections(self._shared, self.config.network.drain_ms)
        await self._closings.aclose()
        return aborted_count

    def drop_connections(self) -> int:
        """Close all connections of Kafka clients without answers. Returns their number."""
        return abort_connections(self._shared)

    async def _open_catalogue(self, clock: Clock) -> Topics:
        """Open the catalogue and compare the folders on disk with it.

        Raises StorageError if the node must not start.
        """
        starts_empty = self.config.log.starts_empty
        self._metastore = open_metastore(self._store, self._files, self._lanes, clock, starts_empty=starts_empty)
        self._syncs = SyncRounds(
            self._files,
            self._store.data_dirs,
            self._lanes.sync,
            lambda: tuple(topics.open_partitions),
            self._files.kernel_syncs(),
        )
        try:
            entry = self._metastore.get(NODE_KEY)
            # Every start begins a new leader epoch.
            leader_epoch = entry.value["starts"] + 1 if entry else 0
            self._configs = DynamicConfigs(self._metastore, self.config, self._audit)
            self._store.cordoned_dirs = self._configs.config.log.cordoned_dirs

            def validate(batch: memoryview, header: BatchHeader, settings: TopicSettings) -> Awaitable[Validated]:
                return self._validation.validate(batch, header, settings, clock.now_ms())

            topics = Topics(
                self._metastore,
                self._store,
                self._configs.config,
                clock,
                leader_epoch,
                self._syncs,
                self._lanes,
                partial(LocalLog, self._cold_reads, validate),
                self._audit,
            )
            await check_folders(topics, self._store, starts_empty=starts_empty)
        except BaseException:
            self._syncs.close()
            self._metastore.close()
            raise
        return topics

    async def _register(self) -> tuple[str, bytes]:
        """Record this start in the metadata store. Returns the cluster id and the id of the journal's directory."""
        metastore, settle = self._metastore, self._lanes.settle
        # The server has to start on a full disk, because only a running server deletes old records.
        self._fetched_before, taken = await commit_with_reserve(self._store, settle, lambda: load_activity(metastore))
        registered = await commit_with_reserve(self._store, settle, lambda: register(metastore, self.config, taken))
        metastore.begin_expiry()
        return registered
