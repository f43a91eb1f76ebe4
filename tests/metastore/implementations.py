"""The implementations of the metadata store that the contract tests run over."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import EmbeddedMetaStore, MetaStore
from storage.disk.files import Files
from storage.disk.journal import Journal
from tests.metastore.naive import NaiveMetaStore
from tests.support.batches import UnsyncedFiles
from tests.support.clock import ManualClock


class Implementation(Protocol):
    """A store under test, in virtual time."""

    clock: ManualClock

    @property
    def store(self) -> MetaStore: ...

    async def advance(self, seconds: float) -> None:
        """Let time pass, and wait until the keys of expired leases are removed."""

    def restart(self) -> None:
        """Stop the store and open it anew."""

    def close(self) -> None: ...


class Embedded:
    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.path = directory / "journal"
        self.files = files or UnsyncedFiles()
        self.clock = ManualClock()
        self.store = self._open()

    def _open(self) -> EmbeddedMetaStore:
        return EmbeddedMetaStore(Journal.open(str(self.path), self.files), DiskLanes().metadata, self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        await self.store.expire_leases()

    def restart(self) -> None:
        self.store.close()
        self.store = self._open()

    def close(self) -> None:
        self.store.close()


class Naive:
    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.store = NaiveMetaStore(self.clock, kept_changes_max=4096)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        await self.store.expire_leases()

    def restart(self) -> None:
        self.store.restart()

    def close(self) -> None:
        self.store.close()


# An implementation is added here, and then has to pass tests/metastore/test_contract.py.
IMPLEMENTATIONS: dict[str, Callable[[Path], Implementation]] = {"embedded": Embedded, "naive": Naive}
