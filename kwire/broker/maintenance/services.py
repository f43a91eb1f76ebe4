"""The background maintenance services of the logs, grouped so that they can be stopped together."""

from typing import Self

from msgspec import Struct

from kwire.broker.maintenance.compaction import LogCleaner
from kwire.broker.maintenance.idle_logs import IdleLogs
from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.maintenance.retention import Retention
from kwire.broker.maintenance.scrub import Scrub
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.concurrency.worker_process import WorkerProcess
from kwire.config.tree import LogConfig
from kwire.descriptors import Descriptors
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files
from storage.log.settings import Background


class MaintenanceServices(Struct, frozen=True):
    """The background maintenance services. The log cleaner and the scrub run work in the process `worker`."""

    syncs: SyncRounds
    idle_logs: IdleLogs
    retention: Retention
    log_cleaner: LogCleaner
    scrub: Scrub
    relocations: Relocations
    worker: WorkerProcess

    @classmethod
    def build(
        cls,
        config: LogConfig,
        topics: Topics,
        clock: Clock,
        syncs: SyncRounds,
        descriptors: Descriptors,
        delete_lane: Background,
        store: LogDirectories,
        files: Files,
    ) -> Self:
        worker = WorkerProcess()
        return cls(
            syncs=syncs,
            idle_logs=IdleLogs(
                topics,
                clock,
                config.producer_id_expiration_ms,
                descriptors.open_logs_max,
                is_short_of_descriptors=lambda: descriptors.is_log_short,
            ),
            retention=Retention(topics, clock, delete_lane, config.retention_check_interval_ms, store, files),
            log_cleaner=LogCleaner(topics, clock, worker, config, files),
            scrub=Scrub(topics, clock, worker, config),
            relocations=Relocations(topics, store, config.move_bytes_per_second_max),
            worker=worker,
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Apply a new configuration."""
        self.idle_logs.producer_id_expiration_ms = config.producer_id_expiration_ms
        self.log_cleaner.reconfigure(config)
        self.relocations.bytes_per_second_max = config.move_bytes_per_second_max

    async def close(self) -> None:
        """Stop all services. Services that others depend on are stopped last."""
        self.idle_logs.close()
        self.retention.close()
        await self.relocations.close()
        await self.scrub.close()
        await self.log_cleaner.close()
        await self.worker.close()
