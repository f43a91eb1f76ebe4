"""The last commits of a metadata store, for watches. It has no event loop.

Watches are cursors in this one history, so a slow watch needs no memory. It falls behind when the history no longer has
the revision that it needs next.
"""

from collections import deque
from itertools import islice
from typing import NamedTuple

from kwire.metastore.interface import Compacted

# The number of changes and the size of their keys and values that the history keeps. Values that are still in the store
# take no further memory. A commit without changes of keys (of leases) counts as one change.
HISTORY_CHANGES_MAX = 4096
HISTORY_BYTES_MAX = 8 * 1024 * 1024


class PackedChange(NamedTuple):
    """A changed key and its packed entry, or None if the key was removed."""

    key: str
    packed: bytes | None


class _Kept(NamedTuple):
    changes: tuple[PackedChange, ...]
    weight: int
    size_bytes: int


class History:
    """The commits of the last revisions, one entry per revision."""

    def __init__(self, revision: int) -> None:
        """`revision` is the store's revision. The history begins after it."""
        self._kept: deque[_Kept] = deque()
        self._weight = 0
        self._size_bytes = 0
        self.oldest_revision = revision + 1

    @property
    def last_revision(self) -> int:
        return self.oldest_revision + len(self._kept) - 1

    def append(self, changes: tuple[PackedChange, ...]) -> None:
        """Add the commit of the next revision, and drop old ones."""
        size_bytes = sum(len(key) + len(packed or b"") for key, packed in changes)
        kept = _Kept(changes, max(len(changes), 1), size_bytes)
        self._kept.append(kept)
        self._weight += kept.weight
        self._size_bytes += kept.size_bytes
        while self._weight > HISTORY_CHANGES_MAX or self._size_bytes > HISTORY_BYTES_MAX:
            dropped = self._kept.popleft()
            self._weight -= dropped.weight
            self._size_bytes -= dropped.size_bytes
            self.oldest_revision += 1

    def find(self, prefix: str, revision: int) -> tuple[int, tuple[PackedChange, ...]]:
        """Return the first commit from `revision` on that changes keys with this prefix, and these changes.

        If there is none, the last revision and no changes are returned. Raises Compacted.
        """
        if revision < self.oldest_revision:
            raise Compacted(revision, self.oldest_revision)
        for number, kept in enumerate(islice(self._kept, revision - self.oldest_revision, None), start=revision):
            found = tuple(change for change in kept.changes if change.key.startswith(prefix))
            if found:
                return number, found
        return self.last_revision, ()
