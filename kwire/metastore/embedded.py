"""The metadata store of a single node: a dictionary in memory, every commit in an fsynced journal first.

One journal frame is one commit, so a commit is whole or absent after a crash. Commits run one after another; the sync
happens in a thread of its own, so the event loop goes on meanwhile. When most of the journal is history, it is
rewritten from what is live before the next commit goes in.

There may be a hundred thousand entries that nobody looks at. So an entry is kept as one packed bytes object, which is a
third of the size of the value's own objects and nothing to the garbage collector, and is unpacked when asked for.
"""

import asyncio
import json
import logging
import marshal
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

from kwire.disk_lanes import DiskLanes, Lane
from kwire.metastore.interface import ABSENT, Change, Conflict, Entry
from storage.errors import DiskFailure
from storage.files import Files
from storage.mirrored_journal import JOURNAL_NAME, MIRROR_NAME, MirroredJournal

log = logging.getLogger("kwire.metastore")

# Rewrite once the journal holds this many times as many writes as there are live keys (and is worth the trouble).
HISTORY_FACTOR = 4
HISTORY_WRITES_MIN = 4096
# Encoding an entry with some settings takes ten microseconds or more; after this many the loop gets its turn.
ENTRIES_PER_TURN = 100
# A commit is often a hundred bytes; parsed together they take half the time.
PARSED_BYTES = 256 * 1024


class JournalLike(Protocol):
    """What a metadata store needs of its journal; the calls that write are made in a thread, one after the other."""

    def replay(self) -> Iterator[bytes]: ...

    def append(self, records: Iterable[bytes]) -> None: ...

    def rewrite(self, records: Iterable[bytes]) -> None: ...

    def close(self) -> None: ...


class EmbeddedMetaStore:
    """Owns the journal. Reads from the event loop; commits are serialised by a lock and may come from many tasks."""

    def __init__(self, journal: JournalLike, lane: Lane) -> None:
        """`lane` writes the journal and is closed with it."""
        self._journal = journal
        self._lane = lane
        self._entries: dict[str, bytes] = {}
        self._revision = 0
        self._writes = 0
        self._turn = asyncio.Lock()
        for frame in _decoded(journal.replay()):
            self._apply(frame)

    @classmethod
    def open(cls, data_dir: str, files: Files, lanes: DiskLanes) -> Self:
        """The store of a data directory, in two copies. Raises JournalDamaged when neither can be read."""
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
        # A caller that goes away halfway does not stop the disk, so it must not stop the rest either.
        committing = asyncio.ensure_future(self._commit(changes))
        # If it fails then, nobody is left to be told, and that is no fault.
        committing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(committing)

    async def _commit(self, changes: Sequence[Change]) -> int:
        async with self._turn:
            for change in changes:
                entry = self.get(change.key)
                if (entry.revision if entry else ABSENT) != change.expected_revision:
                    raise Conflict(change.key)
            if self._writes > max(HISTORY_WRITES_MIN, HISTORY_FACTOR * len(self._entries)):
                # Before the commit, not behind it: what is committed is answered without a wait for this.
                await self._forget_history()
            revision = self._revision + 1
            frame = {"revision": revision, "set": {change.key: change.value for change in changes}}
            await self._in_thread(self._journal.append, [_json(frame)])
            self._apply(frame)
            return revision

    async def _forget_history(self) -> None:
        try:
            await self._in_thread(self._journal.rewrite, await self._live())
        except DiskFailure:
            # The old journal is as good, only longer; the next commit tries again.
            log.exception("the history of the metadata store could not be rewritten")
        else:
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

    async def _live(self) -> list[bytes]:
        """Frames that rebuild what is live, each key under the revision that wrote it; the last keeps the counter."""
        frames = []
        for number, (key, packed) in enumerate(self._entries.items(), start=1):  # commits wait, so it stays as it is
            entry = _unpack(packed)
            frames.append(_json({"revision": entry.revision, "set": {key: entry.value}}))
            if number % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        return [*frames, _json({"revision": self._revision, "set": {}})]

    async def _in_thread(self, work: Any, argument: list[bytes]) -> None:
        await self._lane.run(work, argument)


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _decoded(records: Iterable[bytes]) -> Iterator[dict[str, Any]]:
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
    """The number of the commit that a record of the journal is."""
    revision: int = json.loads(record)["revision"]
    return revision


def _json(frame: dict[str, Any]) -> bytes:
    return _encode(frame).encode()


def _unpack(packed: bytes) -> Entry:
    return Entry(*marshal.loads(packed))
