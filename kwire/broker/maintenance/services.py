"""The background maintenance services of the logs, grouped so that they can be stopped together."""

from msgspec import Struct

from kwire.broker.maintenance.compaction import LogCleaner
from kwire.broker.maintenance.idle_logs import IdleLogs
from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.maintenance.retention import Retention
from kwire.broker.maintenance.scrub import Scrub
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.concurrency.worker_process import WorkerProcess


class MaintenanceServices(Struct, frozen=True):
    """The background maintenance services. The log cleaner and the scrub run work in the process `worker`."""

    syncs: SyncRounds
    idle_logs: IdleLogs
    retention: Retention
    log_cleaner: LogCleaner
    scrub: Scrub
    relocations: Relocations
    worker: WorkerProcess

    async def close(self) -> None:
        """Stop all services. Services that others depend on are stopped last."""
        self.idle_logs.close()
        self.retention.close()
        await self.relocations.close()
        await self.scrub.close()
        await self.log_cleaner.close()
        await self.worker.close()
        self.syncs.close()
