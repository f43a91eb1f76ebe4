"""The metadata store of a single node: a dictionary in memory. Every commit is first written to a journal and synced.

Each commit is one journal frame, so after a crash a commit is either complete or absent. Commits run one after another.
A thread writes and syncs them, so the event loop is not blocked. When most of the journal is obsolete, it is rewritten
from the live entries before the next commit is appended.

There may be a hundred thousand entries, and most are never read. So each entry is stored as one packed bytes object. It
needs a third of the memory of the unpacked value, and the garbage collector does not visit it. The entry is unpacked on
each read.

Leases are in the same journal, and their deadlines only in memory: after a restart the time of each lease begins anew.
`begin_expiry` starts the timer that ends leases. A tool that opens the store of a stopped server does not call it.
"""

import asyncio
import json
import logging
import marshal
import os
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar

from kwire.clock import Clock, SystemClock
from kwire.concurrency.disk_lanes import DiskLanes, Lane, LaneClosed
from kwire.metastore.captured_entries import CapturedEntries, unpack_entry
from kwire.metastore.commits import encode_changes, encode_text, size_of
from kwire.metastore.handles import EmbeddedLease, EmbeddedWatch
from kwire.metastore.history import History, PackedChange
from kwire.metastore.interface import (
    ABSENT,
    CHANGES_PER_COMMIT_MAX,
    COMMIT_BYTES_MAX,
    LEASES_MAX,
    NO_LEASE,
    WATCHES_MAX,
    Change,
    Condition,
    Conflict,
    Entry,
    OnLost,
    TooManyLeases,
    TooManyWatches,
)
from kwire.metastore.leases import LeaseState, LeaseTable, check_ttl
from storage.disk.files import Files
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME, MirroredJournal
from storage.errors import DiskFailure, StorageError

T = TypeVar("T")

log = logging.getLogger("kwire.metastore")

# The journal is rewritten when it contains more than HISTORY_FACTOR times as many writes as there are live keys, and
# more than HISTORY_WRITES_MIN writes.
HISTORY_FACTOR = 4
HISTORY_WRITES_MIN = 4096
# Commits are parsed in groups of this size. Many commits have only a hundred bytes, and parsing them one by one would
# take twice the time.
PARSED_BYTES = 256 * 1024
# If the keys of ended leases could not be removed, the removal is tried again after this time.
EXPIRY_RETRY_SECONDS = 1.0


class JournalLike(Protocol):
    """The journal of a metadata store. The methods that write are called in a thread, one after the other."""

    def replay(self) -> Iterator[bytes]: ...

    def append(self, records: Iterable[bytes]) -> None: ...

    def rewrite(self, records: Iterable[bytes]) -> None: ...

    def close(self) -> None: ...


class EmbeddedMetaStore:
    """A metadata store in a local journal. Use it only in the event loop's thread. One commit runs at a time."""

    def __init__(self, journal: JournalLike, lane: Lane, clock: Clock | None = None) -> None:
        """`lane` runs the writes of the journal. `close` closes the lane and the journal."""
        self._journal = journal
        self._lane = lane
        self._clock = clock or SystemClock()
        self._entries: dict[str, bytes] = {}
        self._revision = 0
        self._writes = 0
        self._commit_lock = asyncio.Lock()
        self._leases = LeaseTable()
        self._expires = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Future[None] | None = None
        self._watches: dict[EmbeddedWatch, None] = {}
        now = self._clock.monotonic()
        for frame in _decode_frames(journal.replay()):
            self._apply(frame, now)
        self._history = History(self._revision)

    @classmethod
    def open(cls, data_dir: str, files: Files, lanes: DiskLanes, clock: Clock | None = None) -> Self:
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
        return cls(journal, lanes.metadata, clock)

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: str) -> Entry | None:
        packed = self._entries.get(key)
        return unpack_entry(packed) if packed is not None else None

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        for key in [key for key in self._entries if key.startswith(prefix)]:
            entry = self.get(key)
            if entry is not None:
                yield key, entry

    # --- commits

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        encoded = encode_changes(changes, conditions)
        return await self._complete(self._commit(changes, conditions, encoded))

    async def _complete(self, change: Coroutine[Any, Any, T]) -> T:
        # The write cannot be cancelled. If the caller is cancelled, the change is still completed.
        completing = asyncio.ensure_future(change)
        # If the caller was cancelled, no code handles an exception of the change. Retrieving the exception here avoids
        # asyncio's warning.
        completing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(completing)

    async def _commit(self, changes: Sequence[Change], conditions: Sequence[Condition], encoded: bytes) -> int:
        async with self._commit_lock:
            self._check(changes, conditions)
            values = {one.key: one.value for one in changes if one.value is not None or one.key in self._entries}
            if not values:
                return self._revision
            if len(values) < len(changes):
                encoded = encode_text(values).encode()
            attached = {one.key: one.lease_id for one in changes if one.lease_id != NO_LEASE}
            return await self._append(values, encoded, {"attached": attached} if attached else {})

    def _check(self, changes: Sequence[Change], conditions: Sequence[Condition]) -> None:
        for change in changes:
            self._check_revision(change.key, change.expected_revision)
        for condition in conditions:
            self._check_revision(condition.key, condition.expected_revision)
        for change in changes:
            if change.lease_id != NO_LEASE:
                self._leases.alive(change.lease_id)

    def _check_revision(self, key: str, expected_revision: int) -> None:
        entry = self.get(key)
        if (entry.revision if entry else ABSENT) != expected_revision:
            raise Conflict(key)

    async def _append(self, values: dict[str, Any], encoded: bytes, more: dict[str, Any]) -> int:
        """Write and apply a frame, with the commit lock held. `encoded` is the JSON of `values`. Returns its revision.

        `more` are the members of the frame that concern leases.
        """
        if self._writes > max(HISTORY_WRITES_MIN, HISTORY_FACTOR * len(self._entries)):
            # Rewrite the journal before the commit. After the commit, the caller would wait for the rewrite although
            # its change is already durable.
            await self._compact_journal()
        revision = self._revision + 1
        rest = f",{encode_text(more)[1:]}" if more else "}"
        await self._in_thread(self._journal.append, [b'{"revision":%d,"set":%b%b' % (revision, encoded, rest.encode())])
        self._apply({"revision": revision, "set": values, **more}, self._clock.monotonic())
        self._history.append(tuple(PackedChange(key, self._entries.get(key)) for key in values))
        for watch in self._watches:
            watch.wake()
        return revision

    async def erase_history(self) -> None:
        """Rewrite both copies of the journal, so that they contain only the current values. Raises StorageError."""
        await self._complete(self._erase_history())

    async def _erase_history(self) -> None:
        async with self._commit_lock:
            await self._rewrite_journal()

    async def _compact_journal(self) -> None:
        try:
            await self._rewrite_journal()
        except DiskFailure:
            # The old journal is still valid. The next commit tries to rewrite it again.
            log.exception("the journal of the metadata store could not be rewritten")

    async def _rewrite_journal(self) -> None:
        await self._in_thread(self._journal.rewrite, await self.capture().frames())
        self._writes = len(self._entries) + len(self._leases)

    def close(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expires = False
        for watch in tuple(self._watches):
            watch.close()
        self._lane.close()
        self._journal.close()

    def _apply(self, frame: dict[str, Any], now: float) -> None:
        revision = frame["revision"]
        values = frame["set"]
        for key, value in values.items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = marshal.dumps((value, revision))
        self._revision = max(self._revision, revision)
        self._writes += len(values) or 1
        attached = frame.get("attached")
        if attached or self._leases.has_keys:
            self._leases.attach(values, attached or {}, now)
        leases = frame.get("leases")
        if leases:
            self._leases.change(leases, now)

    def capture(self) -> CapturedEntries:
        """Return the store as it is now. Later commits do not change the result."""
        leases = {lease.lease_id: lease.ttl_seconds for lease in self._leases}
        return CapturedEntries(self._revision, self._entries.copy(), leases, self._leases.attached_keys())

    # --- watches

    def watch(self, prefix: str, from_revision: int) -> EmbeddedWatch:
        if from_revision < 1:
            raise ValueError(f"a watch begins at revision 1 or later, got {from_revision}")
        if len(self._watches) >= WATCHES_MAX:
            raise TooManyWatches
        watch = EmbeddedWatch(self._history, prefix, from_revision, unpack_entry, self._watches.pop)
        self._watches[watch] = None
        return watch

    # --- leases

    async def lease(self, ttl_seconds: int, on_lost: OnLost | None = None) -> EmbeddedLease:
        check_ttl(ttl_seconds)
        lease = await self._complete(self._grant(ttl_seconds, on_lost))
        self._arm_expiry()
        return EmbeddedLease(lease, self._keep_alive, self._revoke)

    async def resume_lease(self, lease_id: int, on_lost: OnLost | None = None) -> EmbeddedLease:
        lease = self._keep_alive(lease_id)
        lease.on_lost = on_lost
        return EmbeddedLease(lease, self._keep_alive, self._revoke)

    async def _grant(self, ttl_seconds: int, on_lost: OnLost | None) -> LeaseState:
        async with self._commit_lock:
            if len(self._leases) >= LEASES_MAX:
                raise TooManyLeases
            # The id is the revision of the grant, so no two leases ever have the same id.
            lease_id = self._revision + 1
            await self._append({}, b"{}", {"leases": {str(lease_id): ttl_seconds}})
            lease = self._leases.alive(lease_id)
            lease.on_lost = on_lost
            return lease

    def _keep_alive(self, lease_id: int) -> LeaseState:
        return self._leases.keep_alive(lease_id, self._clock.monotonic())

    async def _revoke(self, lease: LeaseState) -> None:
        self._leases.end(lease)
        try:
            await self._complete(self._remove_lost())
        finally:
            self._arm_expiry()

    def begin_expiry(self) -> None:
        """End leases when their time is over, from now on. Call it on the event loop."""
        self._expires = True
        self._arm_expiry()

    async def expire_leases(self) -> None:
        """End the leases whose time is over, and remove their keys durably. Raises StorageError."""
        self._leases.expire(self._clock.monotonic())
        await self._complete(self._remove_lost())

    def _arm_expiry(self) -> None:
        """Set the timer for the next deadline, or for the next attempt to remove the keys of ended leases."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        deadline = self._leases.next_deadline
        if not self._expires or (deadline is None and not self._leases.has_lost):
            return
        delay_seconds = EXPIRY_RETRY_SECONDS
        if deadline is not None and not self._leases.has_lost:
            delay_seconds = max(deadline - self._clock.monotonic(), 0.0)
        self._expiry_timer = asyncio.get_running_loop().call_later(delay_seconds, self._begin_expiring)

    def _begin_expiring(self) -> None:
        self._expiry_timer = None
        if self._expiring is None:
            self._expiring = asyncio.ensure_future(self._expire_and_rearm())

    async def _expire_and_rearm(self) -> None:
        try:
            await self.expire_leases()
        except (StorageError, LaneClosed):
            if self._expires:
                log.exception("the keys of ended leases could not be removed; this is tried again")
        finally:
            self._expiring = None
            self._arm_expiry()

    async def _remove_lost(self) -> None:
        """Remove the keys of the leases that have ended, and then these leases, in commits of bounded size."""
        while True:
            async with self._commit_lock:
                values, leases = self._lost_part()
                if not values and not leases:
                    return
                more = {"leases": leases} if leases else {}
                await self._append(values, encode_text(values).encode(), more)

    def _lost_part(self) -> tuple[dict[str, None], dict[str, None]]:
        """Return keys of lost leases and lost leases without further keys, as many as one commit may have."""
        keys: dict[str, None] = {}
        leases: dict[str, None] = {}
        size_bytes = 0
        for lease in self._leases.lost():
            for key in lease.keys:
                size_bytes += size_of(Change(key, None, ABSENT))
                if len(keys) + len(leases) >= CHANGES_PER_COMMIT_MAX or size_bytes > COMMIT_BYTES_MAX:
                    return keys, leases
                keys[key] = None
            if len(keys) + len(leases) >= CHANGES_PER_COMMIT_MAX:
                return keys, leases
            leases[str(lease.lease_id)] = None
        return keys, leases

    async def _in_thread(self, work: Any, argument: list[bytes]) -> None:
        await self._lane.run(work, argument)


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
