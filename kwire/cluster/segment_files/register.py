"""The register of a segment store: its identity, the sealed epoch and the end of each replica, and the partition logs.

The register is a journal in two copies. A damaged page of one copy therefore never lowers a sealed epoch: a store that
forgot a seal would accept entries from a leader that was replaced. Everything in the register is durable when the
method that changes it returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec
from msgspec import Struct

from kwire.cluster.core.messages import Incarnation, SegmentId
from storage.disk.files import Files
from storage.disk.mirrored_journal import MirroredJournal
from storage.errors import StorageError, disk_errors

REGISTER_NAME: Final = "store.register"
REGISTER_MIRROR_NAME: Final = "store.register.mirror"
# The register is rewritten when it is larger than this, and larger than REWRITE_FACTOR times its size after the last
# rewrite.
REWRITE_BYTES_MIN: Final = 64 * 1024
REWRITE_FACTOR: Final = 4


class Registered(Struct):
    """A replica in the register. `generation` names its file; a number is never used twice on a disk."""

    generation: int
    sealed_epoch: int
    closed_end: int = 0


class _Code(IntEnum):
    IDENTITY = 1
    STARTED = 2
    STOPPED = 3
    REPLICA = 4
    REMOVED = 5
    LOG = 6


class RegisterDamaged(StorageError):
    """A record of the register has a valid checksum and an unknown content."""


class Register:
    """The register of one data directory. Used by one thread."""

    def __init__(self, journal: MirroredJournal) -> None:
        self._journal = journal
        self._commit = 0
        self._rewrite_at = REWRITE_BYTES_MIN
        self._cookie = 0
        self._start = 0
        self._last_generation = 0
        # Whether the store was stopped cleanly before this start.
        self.was_clean = True
        self.replicas: dict[SegmentId, Registered] = {}
        # The generation of the log of each partition, which names its folder.
        self.logs: dict[str, int] = {}

    @classmethod
    def open(cls, directory: str, files: Files, new_cookie: int) -> Register:
        """Open or create the register and count the start. A new register gets `new_cookie`."""
        with disk_errors(f"create {directory}"):
            files.makedirs(directory)
            files.fsync_dir(os.path.dirname(directory))
        path, mirror_path = os.path.join(directory, REGISTER_NAME), os.path.join(directory, REGISTER_MIRROR_NAME)
        journal = MirroredJournal.open(path, mirror_path, files, _commit_number)
        register = cls(journal)
        try:
            for record in journal.replay():
                register._apply(msgspec.msgpack.decode(record))
            if not register._cookie:
                register._append((_Code.IDENTITY, new_cookie))
                register._cookie = new_cookie
            register._append((_Code.STARTED, register._start + 1))
            register._start += 1
        except BaseException:
            journal.close()
            raise
        return register

    def _apply(self, fields: list[object]) -> None:
        match fields:
            case [int(commit), _Code.IDENTITY, int(cookie)]:
                self._cookie = cookie
            case [int(commit), _Code.STARTED, int(start)]:
                self._start, self.was_clean = start, False
            case [int(commit), _Code.STOPPED]:
                self.was_clean = True
            case [int(commit), _Code.REPLICA, str(stream), int(number), int(generation), int(epoch), int(end)]:
                self.replicas[SegmentId(stream, number)] = Registered(generation, epoch, end)
                self._last_generation = max(self._last_generation, generation)
            case [int(commit), _Code.REMOVED, str(stream), int(number), int(generation)]:
                self.replicas.pop(SegmentId(stream, number), None)
                self._last_generation = max(self._last_generation, generation)
            case [int(commit), _Code.LOG, str(stream), int(generation), bool(exists)]:
                self.logs.pop(stream, None)
                if exists:
                    self.logs[stream] = generation
                self._last_generation = max(self._last_generation, generation)
            case _:
                raise RegisterDamaged(f"{REGISTER_NAME}: unknown record {fields!r}")
        self._commit = commit

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self._cookie, self._start)

    def next_generation(self) -> int:
        self._last_generation += 1
        return self._last_generation

    def set_replica(self, segment: SegmentId, registered: Registered) -> None:
        self._append(_replica_fields(segment, registered))
        self.replicas[segment] = registered

    def remove_replica(self, segment: SegmentId) -> None:
        self._append((_Code.REMOVED, *segment, self._last_generation))
        del self.replicas[segment]

    def add_log(self, stream: str, generation: int) -> None:
        self._append((_Code.LOG, stream, generation, True))
        self.logs[stream] = generation

    def remove_log(self, stream: str) -> None:
        self._append((_Code.LOG, stream, self.logs[stream], False))
        del self.logs[stream]

    def close(self, *, is_clean: bool) -> None:
        """Close the files. `is_clean`: everything that the store answered for is on the disk."""
        try:
            if is_clean:
                self._append((_Code.STOPPED,))
        finally:
            self._journal.close()

    def _append(self, fields: tuple[object, ...]) -> None:
        self._journal.append([msgspec.msgpack.encode((self._commit + 1, *fields))])
        self._commit += 1
        if self._journal.size_bytes > self._rewrite_at:
            self._journal.rewrite(msgspec.msgpack.encode((self._commit, *one)) for one in self._live_fields())
            self._rewrite_at = max(REWRITE_BYTES_MIN, REWRITE_FACTOR * self._journal.size_bytes)

    def _live_fields(self) -> Iterator[tuple[object, ...]]:
        yield (_Code.IDENTITY, self._cookie)
        yield (_Code.STARTED, self._start)
        # A removed replica that never existed keeps the last generation.
        yield (_Code.REMOVED, "", 0, self._last_generation)
        for segment, registered in self.replicas.items():
            yield _replica_fields(segment, registered)
        for stream, generation in self.logs.items():
            yield (_Code.LOG, stream, generation, True)


def _replica_fields(segment: SegmentId, registered: Registered) -> tuple[object, ...]:
    return (_Code.REPLICA, *segment, registered.generation, registered.sealed_epoch, registered.closed_end)


def _commit_number(record: bytes) -> int:
    fields = msgspec.msgpack.decode(record)
    number = fields[0] if isinstance(fields, list) and fields else None
    if not isinstance(number, int):
        raise RegisterDamaged(f"{REGISTER_NAME}: a record has no number")
    return number
