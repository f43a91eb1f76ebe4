"""Everybody who looks after the logs while the server runs, together: they are stopped in one order, and counted."""

from msgspec import Struct

from kwire.broker.cleaning import Cleaning
from kwire.broker.moves import Moves
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.retention import Retention
from kwire.broker.scrub import Scrub
from kwire.broker.upkeep import Upkeep
from kwire.broker.worker_process import WorkerProcess


class Keepers(Struct, frozen=True):
    """`worker` is the process that cleaning and scrub have their work done in."""

    syncs: SyncRounds
    upkeep: Upkeep
    retention: Retention
    cleaning: Cleaning
    scrub: Scrub
    moves: Moves
    worker: WorkerProcess

    async def close(self) -> None:
        """Leave the logs alone; those that others wait for come last."""
        self.upkeep.close()
        self.retention.close()
        await self.moves.close()
        await self.scrub.close()
        await self.cleaning.close()
        await self.worker.close()
        self.syncs.close()
