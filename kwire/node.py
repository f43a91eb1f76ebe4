"""A node: every object of the server, built bottom-up, started and stopped. The only place where things are wired."""

import asyncio
import gc
import importlib
import logging
import os
import uuid
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from kwire.broker.batch_validation import Validated, ValidationWorker
from kwire.broker.cleaning import Cleaning
from kwire.broker.cold_reads import ColdReads
from kwire.broker.coordinator_log import CoordinatorLog
from kwire.broker.dynamic_configs import DynamicConfigs
from kwire.broker.features import TRANSACTION_VERSION, Features
from kwire.broker.fetch_sessions import FetchSessions
from kwire.broker.full_disk import freeing
from kwire.broker.keepers import Keepers
from kwire.broker.lag import Lags
from kwire.broker.log_dirs import LogDirs
from kwire.broker.metadata_log import MetadataLog
from kwire.broker.moves import Moves
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.producer_ids import ProducerIds
from kwire.broker.retention import Retention
from kwire.broker.rooms.handover import handed_over
from kwire.broker.scrub import Scrub
from kwire.broker.start_up import NODE_KEY, check_folders, check_metadata, new_cluster_id, open_metastore
from kwire.broker.store.event_store import EventStore
from kwire.broker.store.event_topics import EventTopics
from kwire.broker.store.files.live import LiveFiles
from kwire.broker.store.schema_checks import SchemaChecks
from kwire.broker.store.schema_worker import SchemaWorker
from kwire.broker.stored_sizes import StoredSizes
from kwire.broker.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topics
from kwire.broker.upkeep import Upkeep
from kwire.broker.work_allowance import WorkAllowance
from kwire.broker.worker_process import WorkerProcess
from kwire.clock import Clock, SystemClock
from kwire.config import Address, Config
from kwire.coordinator.group.consumer.configured import ConfiguredGroups
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.definitions import DefinedGroups, GroupDefinitions
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topics_view import CatalogueView
from kwire.coordinator.transaction.admissions import Admissions
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.marker_writing import Markers
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.descriptors import Descriptors, current_limit
from kwire.disk_lanes import DiskLanes
from kwire.handlers import HANDLERS
from kwire.handlers.context import NodeFacts, Services
from kwire.metastore import Change
from kwire.metrics import HttpMetrics, LoopMetrics, ServerMetrics, StreamMetrics
from kwire.server.free_memory import FreeMemory
from kwire.server.kafka import Shared
from kwire.server.listener import Door, Sweep
from kwire.server.stalls import StallProbe
from kwire.streams.local import LocalLog
from kwire.topic_config import TopicSettings
from storage.batch import BatchHeader
from storage.directories import LogDirectories
from storage.errors import StorageError
from storage.files import Files

if TYPE_CHECKING:
    from kwire.broker.rooms.rooms import Rooms
    from kwire.broker.subscriptions import Subscriptions
    from kwire.server.http import HttpServer
    from kwire.server.webhook_delivery import WebhookDelivery

log = logging.getLogger("kwire.node")

DRAIN_POLL_SECONDS = 0.02
# What is loaded, in a thread, once Kafka's clients are served: with the second comes the first.
ROOMS_MODULE = "kwire.broker.rooms.cleanup"
HTTP_MODULE = "kwire.server.http"
NATIVE_CALLS_MODULES = ("storage.residency", "storage.allocation")


class Node:
    """Built and started by `start`, ended by `stop`; between them it serves."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._lanes = DiskLanes()
        self._files = Files()
        self._descriptors = Descriptors(current_limit(), config.log.open_max)
        self._is_ready = False
        self.http: HttpServer | None = None
        self._webhooks: WebhookDelivery | None = None
        self._store = LogDirectories(
            [str(path) for path in config.log.data_dirs], self._files, self._lanes, config.log.reserve_bytes
        )

    async def start(self) -> None:
        self._descriptors.report(self.config.log.open_max)
        clock = SystemClock()
        self._cold_reads = ColdReads(self._lanes.read)
        self._store.lock()
        try:
            topics = await self._open_catalogue(clock)
        except BaseException:
            self._store.leave_as_found()
            raise
        cluster_id, directory_id = await self._register()
        leader_epoch = topics.leader_epoch
        await self._recover(topics)
        self._schema_worker = SchemaWorker()
        self._validation = ValidationWorker()
        self.event_topics = EventTopics(topics, self._metastore, self._schema_worker.run)
        checks = SchemaChecks(self.event_topics.schemas_and_revision, self._schema_worker.run)
        self.event_store = EventStore(topics, self._metastore, clock, self._syncs, checks)
        await self.event_store.open()
        self._keepers = self._build_keepers(topics, clock)
        self.event_files = await self._open_event_files(topics, directory_id)
        definitions = GroupDefinitions(self._metastore)
        groups = GroupCoordinator(
            log=CoordinatorLog(topics, OFFSETS_TOPIC, self._cold_reads),
            clock=clock,
            call_later=asyncio.get_running_loop().call_later,
            call_soon=asyncio.get_running_loop().call_soon,
            settings=self._group_settings(topics),
            topics=CatalogueView(topics.catalogue),
            consumer_settings=DefinedGroups(definitions, ConfiguredGroups(self._configs)),
        )
        apis = {key: handler.api for key, handler in HANDLERS.items()}
        features = Features(self._metastore, apis)
        await features.register()
        markers = Markers(topics, groups, asyncio.get_running_loop().call_soon)
        transactions = self._build_transactions(topics, markers, features, clock)
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
            admissions=Admissions(transactions),
            markers=markers,
            cold_reads=self._cold_reads,
            fetch_sessions=FetchSessions(clock, self.config.network.fetch_session_slots),
            moves=self._keepers.moves,
            log_dirs=LogDirs(topics, self._store, self._keepers.moves, self._files),
            event_store=self.event_store,
            validation=self._validation,
            work_allowance=WorkAllowance(),
        )
        server_metrics = ServerMetrics({key: api.name for key, api in apis.items()})
        self._shared = Shared(HANDLERS, services, server_metrics, self._descriptors)
        self._configs.listen(topics.reconfigure)
        self._configs.listen(self._reconfigure)
        # The last that takes long: from here on clients may come.
        gc.collect()
        loop_metrics = LoopMetrics()
        self._stalls = StallProbe(loop_metrics)
        self._sweep = Sweep(self._shared)
        self._free_memory = FreeMemory()
        self._free_memory.watch(self._shared.large_requests.freed_bytes)
        advertised = {one.name: one for one in self.config.advertised_listeners}
        self.doors = [Door(one, advertised.get(one.name), self._shared) for one in self.config.listeners]
        for door in self.doors:
            await door.open()
        # Loading aiohttp and what uses it takes longer than all the rest; Kafka clients need not wait for it.
        await asyncio.to_thread(importlib.import_module, ROOMS_MODULE if self.config.http is None else HTTP_MODULE)
        # Later there may be no descriptor to load them with, and a sync of many files needs them.
        for module in NATIVE_CALLS_MODULES:
            await asyncio.to_thread(importlib.import_module, module)
        self._subscriptions, rooms = self._build_rooms(topics, groups, definitions, clock)
        if self.config.webhooks.is_enabled:
            await self._open_webhooks(topics, clock)
        if self.config.http is not None:
            await self._open_http(self.config.http, services, definitions, rooms, loop_metrics)
        self._is_ready = True
        groups.load()
        transactions.load()
        self._keepers.moves.resume_soon()
        self._metadata_check = asyncio.create_task(check_metadata(topics, self._store))
        # What lives until the end need not be looked at by every collection.
        gc.freeze()

    def _build_transactions(
        self, topics: Topics, markers: Markers, features: Features, clock: Clock
    ) -> TransactionCoordinator:
        config = self.config.transactions
        # An id's place is its hash modulo the partitions the topic was made with, whatever is configured by now.
        known = topics.get(TRANSACTIONS_TOPIC)
        return TransactionCoordinator(
            log=CoordinatorLog(topics, TRANSACTIONS_TOPIC, self._cold_reads),
            clock=clock,
            call_later=asyncio.get_running_loop().call_later,
            settings=TransactionSettings(
                transactional_id_expiration_ms=config.id_expiration_ms,
                remove_expired_interval_ms=config.expire_interval_ms,
                max_timeout_ms=config.timeout_ms_max,
                abort_timed_out_interval_ms=config.abort_interval_ms,
                state_log_num_partitions=len(known.partitions) if known else config.partition_count,
            ),
            write_markers=markers.write_all,
            transaction_version=lambda: features.level(TRANSACTION_VERSION),
            coordinator_epoch=topics.leader_epoch,
        )

    async def _open_webhooks(self, topics: Topics, clock: Clock) -> None:
        module = await asyncio.to_thread(importlib.import_module, "kwire.server.webhook_delivery")
        self._webhooks = module.WebhookDelivery(topics, self._metastore, clock, self.config.webhooks, self._descriptors)
        await self._webhooks.open()

    async def _open_event_files(self, topics: Topics, directory_id: bytes) -> LiveFiles | None:
        files_dir = self.config.events.files_dir
        if files_dir is None:
            return None
        # The journal's directory, not the cluster: whoever lost its catalogue must not take the files for its own.
        return await LiveFiles.open(
            os.path.abspath(files_dir),
            directory_id.hex(),
            topics,
            self._metastore,
            self.event_topics,
        )

    def _build_keepers(self, topics: Topics, clock: Clock) -> Keepers:
        config, worker = self._configs.config.log, WorkerProcess()
        return Keepers(
            syncs=self._syncs,
            upkeep=Upkeep(
                topics,
                clock,
                config.producer_id_expiration_ms,
                self._descriptors.open_logs_max,
                is_short_of_descriptors=lambda: self._descriptors.is_log_short,
            ),
            retention=Retention(
                topics, clock, self._lanes.delete, config.retention_check_interval_ms, self._store, self._files
            ),
            cleaning=Cleaning(topics, clock, worker, config, self._files),
            scrub=Scrub(topics, clock, worker, config),
            moves=Moves(topics, self._store, config.move_bytes_per_second_max),
            worker=worker,
        )

    async def _open_http(
        self,
        address: Address,
        services: Services,
        definitions: GroupDefinitions,
        rooms: "Rooms",
        loop_metrics: LoopMetrics,
    ) -> None:
        from kwire.broker.events.partitioning import Partitioner
        from kwire.broker.events.publishing import Publisher
        from kwire.coordinator.web_groups import WebGroups, defaults_of
        from kwire.server.http import HttpServer
        from kwire.server.takeover import TakeOvers
        from kwire.streams.local_commands import local_commands
        from kwire.web.groups.reports import GroupReports
        from kwire.web.memory import HttpMemory
        from kwire.web.page_turns import PageTurns
        from kwire.web.services import WebServices

        topics, groups, clock = services.topics, services.groups, services.clock
        webhooks = self._webhooks.webhooks if self._webhooks is not None else None
        stream_metrics = StreamMetrics()
        web = WebServices(
            topics,
            GroupReports(groups, Lags(topics, self._store, self._files, self._cold_reads, clock)),
            self._shared.metrics,
            loop_metrics,
            lambda: self._is_ready,
            lambda: self._cold_reads.count,
            lambda: len(self._store.offline_dirs),
            StoredSizes(topics, self._store, self._files),
            self._keepers,
            services.fetch_sessions,
            self.config,
            web_groups=WebGroups(groups, definitions, topics, clock, defaults_of(self.config.rest_groups)),
            clock=clock,
            rooms=rooms,
            subscriptions=self._subscriptions,
            publisher=Publisher(clock, asyncio.get_running_loop().call_soon),
            partitioner=Partitioner(),
            stream_metrics=stream_metrics,
            take_over=TakeOvers(
                stream_metrics, self.config.network.send_timeout_ms, self.config.web.socket_idle_timeout_ms
            ),
            http_metrics=HttpMetrics(),
            memory=HttpMemory(self.config.web.memory_bytes_max, self.config.web.memory_wait_ms),
            page_turns=PageTurns(),
            transactions=services.transactions,
            event_store=self.event_store,
            event_topics=self.event_topics,
            commands=local_commands(topics, self.event_store, self.event_topics, rooms, webhooks),
            webhook_statistics=webhooks.statistics if webhooks is not None else None,
            event_files=self.event_files.sink if self.event_files is not None else None,
            descriptors=self._descriptors,
        )
        self._free_memory.watch(lambda: web.memory.freed_bytes)
        self.http = HttpServer(address, web, self._descriptors)
        self.http.reconfigure(self._configs.config.network)
        await self.http.open()

    def _build_rooms(
        self, topics: Topics, groups: GroupCoordinator, definitions: GroupDefinitions, clock: Clock
    ) -> "tuple[Subscriptions, Rooms]":
        from kwire.broker.rooms.cleanup import RoomCleanup
        from kwire.broker.rooms.rooms import Rooms
        from kwire.broker.subscriptions import Subscriptions

        loop, config = asyncio.get_running_loop(), self.config
        subscriptions = Subscriptions(clock, loop.call_soon, loop.call_later, config.rooms)
        rooms = Rooms(topics, config.rooms, subscriptions, is_delete_allowed=config.topics.is_delete_allowed)

        def is_in_use(topic: str) -> bool:
            # Who keeps a place in a topic without reading it all the time is asked before a room goes.
            if definitions.has_topic(topic) or groups.has_offsets_in(topic):
                return True
            return self._webhooks is not None and self._webhooks.webhooks.has_any_in(topic)

        self._room_cleanup = RoomCleanup(
            rooms, topics, subscriptions, clock, self._store, self._files, is_in_use, self._fetched_before
        )
        return subscriptions, rooms

    def _reconfigure(self, config: Config) -> None:
        """Hand what was changed while the server runs to those who hold their part of the configuration."""
        self._shared.network = config.network
        if self.http is not None:
            self.http.reconfigure(config.network)
        self._keepers.upkeep.producer_id_expiration_ms = config.log.producer_id_expiration_ms
        self._keepers.cleaning.reconfigure(config.log)
        self._keepers.moves.bytes_per_second_max = config.log.move_bytes_per_second_max
        self._store.cordoned_dirs = config.log.cordoned_dirs

    async def stop(self) -> None:
        """Answer what was taken, then put everything away so that the next start has nothing to recover."""
        self._is_ready = False
        self._metadata_check.cancel()
        for door in self.doors:
            door.close()
        for connection in tuple(self._shared.connections):
            connection.drain()
        # Who waits for data is answered now; members that wait for their group look for a coordinator again.
        self._subscriptions.close()
        self._shared.services.topics.wake_readers()
        if self.http is not None:
            # While there is a coordinator: streams of groups commit what they have sent.
            await self.http.end_streams()
        self._shared.services.transactions.close()
        self._shared.services.groups.close()
        await self._drained()
        self._free_memory.close()
        self._sweep.close()
        self._stalls.close()
        if self.http is not None:
            await self.http.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        await self._validation.close()
        await self._schema_worker.close()
        await self.event_store.close()
        if self.event_files is not None:
            await self.event_files.close()
        self._room_cleanup.close()
        self._cold_reads.close()
        await self._room_cleanup.hand_over(self._metastore)
        await self._shared.services.topics.marks.idle()
        await self._keepers.close()
        self._lanes.close()
        self._store.close()
        self._metastore.close()

    async def _recover(self, topics: Topics) -> None:
        """After a crash, find the end of every log that was written to: later it would hold up clients.

        What a kill left in the page cache is put on disk before anybody may read it.
        """
        for folder in self._store.unclean_folders:
            name, _, index = folder.rpartition("-")
            topic = topics.get(name)
            partition = topic.partition(int(index)) if topic is not None else None
            if partition is not None:
                try:
                    partition.open()
                except StorageError as error:
                    # It is tried again when somebody asks for it, and the answer says what is wrong.
                    log.error("%s cannot be opened: %s", folder, error)
        await self._syncs.idle()

    async def _drained(self) -> None:
        """Wait until every connection is gone, but not longer than `kwire.shutdown.drain.ms`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.network.drain_ms / 1000
        while self._shared.connections and loop.time() < deadline:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        for connection in tuple(self._shared.connections):
            connection.abort()

    async def _open_catalogue(self, clock: Clock) -> Topics:
        """The topics, once the folders on disk agree with them. Raises StorageError when the start is refused."""
        starts_empty = self.config.log.starts_empty
        self._metastore = open_metastore(self._store, self._files, self._lanes, starts_empty=starts_empty)
        self._syncs = SyncRounds(
            self._files,
            self._store.data_dirs,
            self._lanes.sync,
            lambda: tuple(topics.open_partitions),
            self._files.kernel_syncs(),
        )
        try:
            entry = self._metastore.get(NODE_KEY)
            # Every start leads anew.
            leader_epoch = entry.value["starts"] + 1 if entry else 0
            self._configs = DynamicConfigs(self._metastore, self.config)
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
            )
            await check_folders(topics, self._store, starts_empty=starts_empty)
        except BaseException:
            self._syncs.close()
            self._metastore.close()
            raise
        return topics

    async def _register(self) -> tuple[str, bytes]:
        """Note this start; returns the cluster's id and that of the journal's directory."""
        entry = self._metastore.get(NODE_KEY)
        cluster_id: str = entry.value["cluster_id"] if entry else self.config.cluster_id or new_cluster_id()
        if self.config.cluster_id not in (None, cluster_id):
            raise ValueError(
                f"cluster.id is {self.config.cluster_id}, but {self.config.log.data_dir} belongs to {cluster_id}"
            )
        starts: int = entry.value["starts"] + 1 if entry else 0
        # Journals of before it was written down have none yet.
        directory_id: str = (entry.value.get("directory_id") if entry else None) or uuid.uuid4().hex
        value = {"cluster_id": cluster_id, "starts": starts, "directory_id": directory_id}
        self._fetched_before, taken = handed_over(self._metastore)
        changes = [Change(NODE_KEY, value, entry.revision if entry else 0), *taken]
        # A server that did not start on a full disk could not let old records go.
        await freeing(self._store, self._lanes.settle, lambda: self._metastore.commit(changes))
        return cluster_id, bytes.fromhex(directory_id)

    def _group_settings(self, topics: Topics) -> GroupSettings:
        groups = self.config.groups
        # A group's place is its hash modulo the partitions the topic was made with, whatever is configured by now.
        offsets = topics.get(OFFSETS_TOPIC)
        return GroupSettings(
            initial_rebalance_delay_ms=groups.initial_rebalance_delay_ms,
            min_session_timeout_ms=groups.session_timeout_ms_min,
            max_session_timeout_ms=groups.session_timeout_ms_max,
            max_size=groups.member_count_max,
            offset_metadata_max_bytes=groups.offset_metadata_bytes_max,
            offsets_retention_ms=groups.offsets_retention_ms,
            offsets_retention_check_interval_ms=groups.offsets_retention_check_interval_ms,
            offsets_topic_num_partitions=len(offsets.partitions) if offsets else groups.offsets_partition_count,
        )
