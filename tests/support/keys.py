"""Keys in a metadata store of their own, in virtual time."""

from pathlib import Path

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.access.keys.keys import Keys
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import EmbeddedMetaStore
from storage.disk.journal import Journal
from tests.support.batches import UnsyncedFiles
from tests.support.clock import ManualClock


class KeyStore:
    """A journal, and the keys that are read from it at each `open`."""

    def __init__(self, path: Path, audit: Audit = NO_AUDIT) -> None:
        self.path = path
        self.clock = ManualClock()
        self._audit = audit
        self._opened: EmbeddedMetaStore | None = None

    @property
    def metastore(self) -> EmbeddedMetaStore:
        assert self._opened is not None
        return self._opened

    def open(self) -> Keys:
        self.close()
        self._opened = EmbeddedMetaStore(Journal.open(str(self.path), UnsyncedFiles()), DiskLanes().metadata)
        return Keys(self._opened, self.clock, self._audit)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
