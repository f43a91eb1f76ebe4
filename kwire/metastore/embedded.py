"""The metadata store of a single node: a dictionary in memory. Every commit is first written to a journal and synced.

Each commit is one journal frame, so after a crash a commit is either complete or absent. Commits run one after another.
A thread writes and syncs them, so the event loop is not blocked. When most of the journal is obsolete, it is rewritten
from the live entries before the next commit is appended.

There may be a hundred thousand entries, and most are never read. So each entry is stored as one packed bytes object. It
needs a third of the memory of the unpacked value, and the garbage collector does not visit it. The entry is unpacked on
each read.
"""

import asyncio
import json
import logging
import marshal
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

from kwire.concurrency.disk_lanes import DiskLanes, Lane
from kwire.metastore.interface import ABSENT, Change, Conflict, Entry
from storage.disk.files import Files
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME, MirroredJournal
from storage.errors import DiskFailure

log = logging.getLogger("kwire.metastore")

# The journal is rewritten when it contains more than HISTORY_FACTOR times as many writes as there are live keys, and
# more than HISTORY_WRITES_MIN writes.
HISTORY_FACTOR = 4
HISTORY_WRITES_MIN = 4096
# Encoding an entry with some settings takes ten microseconds or more. After this many entries, the event loop runs
# other work.
ENTRIES_PER_CHUNK = 100
# Commits are parsed in groups of this size. Many commits have only a hundred bytes, and parsing them one by one would
# take twice the time.
PARSED_BYTES = 256 * 1024


class JournalLike(Protocol):
    """The journal of a metadata store. The methods that write are called in a thread, one after the other."""

    def replay(self) -> Iterator[bytes]: ...

    def append(self, records: Iterable[bytes]) -> None: ...

    def rewrite(self, records: Iterable[bytes]) -> None: ...

    def close(self) -> None: ...


class EmbeddedMetaStore:
    """A metadata store in a local journal. Use it only in the event loop's thread. One commit runs at a time."""

    def __init__(self, journal: JournalLike, lane: Lane) -> None:
        """`lane` runs the writes of the journal. `close` closes the lane and the journal."""
        self._journal = journal
        self._lane = lane
        self._entries: dict[str, bytes] = {}
        self._revision = 0
        self._writes = 0
        self._commit_lock = asyncio.Lock()
        for frame in _decode_frames(journal.replay()):
            self._apply(frame)

    @classmethod
    def open(cls, data_dir: str, files: Files, lanes: DiskLanes) -> Self:
        """Open the store of a data directory. Its journal has two copies. Raises JournalDamaged if both are damaged."""
        journal = MirroredJournal.open(
            os.path.join(data_dir, JOURNAL_NAME),
            os.path.join(data_dir, MIRROR_NAME),
            files,
            revision_of,
            lanes.mirror,
        )
        for repair in journal.repairs:
            log.warning("the catalogue was repaired: %s", repair)
        return cls(journal, lanes.metadata)

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: str) -> Entry | None:
        packed = self._entries.get(key)
        return _unpack(packed) if packed is not None else None

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        for key in [key for key in self._entries if key.startswith(prefix)]:
            entry = self.get(key)
            if entry is not None:
                yield key, entry

    async def commit(self, changes: Sequence[Change]) -> int:
        # The write cannot be cancelled. If the caller is cancelled, the commit is still completed.
        committing = asyncio.ensure_future(self._commit(changes))
        # If the caller was cancelled, no code handles an exception of the commit. Retrieving the exception here avoids
        # asyncio's warning.
        committing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(committing)

    async def _commit(self, changes: Sequence[Change]) -> int:
        async with self._commit_lock:
            for change in changes:
                entry = self.get(change.key)
                if (entry.revision if entry else ABSENT) != change.expected_revision:
                    raise Conflict(change.key)
            if self._writes > max(HISTORY_WRITES_MIN, HISTORY_FACTOR * len(self._entries)):
                # Rewrite the journal before the commit. After the commit, the caller would wait for the rewrite
                # although its change is already durable.
                await self._compact_journal()
            revision = self._revision + 1
            frame = {"revision": revision, "set": {change.key: change.value for change in changes}}
            await self._in_thread(self._journal.append, [_json(frame)])
            self._apply(frame)
            return revision

    async def erase_history(self) -> None:
        """Rewrite both copies of the journal, so that they contain only the current values. Raises StorageError."""
        async with self._commit_lock:
            await self._rewrite_journal()

    async def _compact_journal(self) -> None:
        try:
            await self._rewrite_journal()
        except DiskFailure:
            # The old journal is still valid. The next commit tries to rewrite it again.
            log.exception("the journal of the metadata store could not be rewritten")

    async def _rewrite_journal(self) -> None:
        await self._in_thread(self._journal.rewrite, await self._live_frames())
        self._writes = len(self._entries)

    def close(self) -> None:
        self._lane.close()
        self._journal.close()

    def _apply(self, frame: dict[str, Any]) -> None:
        revision = frame["revision"]
        for key, value in frame["set"].items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = marshal.dumps((value, revision))
        self._revision = max(self._revision, revision)
        self._writes += len(frame["set"])

    async def _live_frames(self) -> list[bytes]:
        """Return one frame for each live entry, with the entry's revision. The last frame has the store's revision."""
        frames = []
        for number, (key, packed) in enumerate(
            self._entries.items(), start=1
        ):  # the entries do not change during the iteration, because the caller holds the commit lock
            entry = _unpack(packed)
            frames.append(_json({"revision": entry.revision, "set": {key: entry.value}}))
            if number % ENTRIES_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return [*frames, _json({"revision": self._revision, "set": {}})]

    async def _in_thread(self, work: Any, argument: list[bytes]) -> None:
        await self._lane.run(work, argument)


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _decode_frames(records: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    group: list[bytes] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record)
        if size >= PARSED_BYTES:
            yield from json.loads(b"[%b]" % b",".join(group))
            group, size = [], 0
    yield from json.loads(b"[%b]" % b",".join(group))


def revision_of(record: bytes) -> int:
    """Return the revision of the commit in a journal record."""
    revision: int = json.loads(record)["revision"]
    return revision


def _json(frame: dict[str, Any]) -> bytes:
    return _encode(frame).encode()


def _unpack(packed: bytes) -> Entry:
    return Entry(*marshal.loads(packed))
