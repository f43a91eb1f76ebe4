"""Two copies of one journal. Damage to one copy is repaired from the other.

A commit is written to both files and acknowledged when both are synced, so each file has every acknowledged commit. At
the start the copies are compared. A copy that is missing, empty, damaged or shorter than the other is rewritten from
the intact one, and :attr:`MirroredJournal.repairs` names it. A damaged file is kept under another name. A kill between
the two writes leaves, in one file, a commit that was not acknowledged. Such a commit is treated as committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from storage.disk.files import Files
from storage.disk.journal import Journal, encode_frame
from storage.errors import DiskFailure, JournalDamaged, StorageFailed, disk_errors
from storage.log.settings import Background

# The catalogue's two copies, in the first data directory.
JOURNAL_NAME: Final = "metastore.journal"
MIRROR_NAME: Final = "metastore.mirror"
DAMAGED_SUFFIX: Final = ".damaged"

# Returns the commit number of a record. Commit numbers rise.
NumberOf = Callable[[bytes], int]


class MirroredJournal:
    """A journal in two files, with the methods of :class:`~storage.disk.journal.Journal`. Used by one thread.

    ``background`` syncs the second copy while the caller's thread syncs the first one. Without ``background``,
    the caller's thread syncs both, one after the other.
    """

    def __init__(self, first: Journal, second: Journal, background: Background | None = None) -> None:
        self._first = first
        self._second = second
        self._background = background
        # The repairs that were made when the copies were opened, one sentence each.
        self.repairs: list[str] = []

    @classmethod
    def open(
        cls, path: str, mirror_path: str, files: Files, number_of: NumberOf, background: Background | None = None
    ) -> MirroredJournal:
        """Open or create both files.

        Raises :class:`JournalDamaged` if one file is damaged and the other is damaged or empty.
        """
        found: list[Journal] = []
        damage: dict[str, JournalDamaged] = {}
        was_there = {one: files.exists(one) for one in (path, mirror_path)}
        try:
            for one in (path, mirror_path):
                try:
                    found.append(Journal.open(one, files))
                except JournalDamaged as error:
                    damage[one] = error
            if not found:
                raise JournalDamaged("; ".join(map(str, damage.values())))
            if len(found) == 1:
                (lost_path,) = damage
                source = found[0]
                # An empty file is not a copy of the damaged one.
                if not source.records:
                    raise damage[lost_path]
                with disk_errors(f"rename the damaged journal {lost_path}"):
                    files.rename(lost_path, lost_path + DAMAGED_SUFFIX)
                made = Journal.open(lost_path, files)
                found = [made, source] if lost_path == path else [source, made]
            journal = cls(found[0], found[1], background)
            journal._compare(number_of, damage, was_there)
        except BaseException:
            for one_found in found:
                one_found.close()
            raise
        return journal

    def _compare(self, number_of: NumberOf, damage: dict[str, JournalDamaged], was_there: dict[str, bool]) -> None:
        newest, other = self._first, self._second
        newest_number, other_number = (_last_number(one, number_of) for one in (newest, other))
        if newest_number == other_number:
            return
        if newest_number < other_number:
            newest, other = other, newest
            newest_number, other_number = other_number, newest_number
        if other.path in damage:
            what = f"{damage[other.path]}; the damaged file is kept as {os.path.basename(other.path)}{DAMAGED_SUFFIX}"
        elif not was_there[other.path]:
            what = f"{other.path} was missing"
        elif not other_number:
            what = f"{other.path} was empty"
        else:
            what = f"{other.path} ended with commit {other_number}, its copy with commit {newest_number}"
        other.rewrite(newest.records)
        self.repairs.append(f"{what}; rewritten from {os.path.basename(newest.path)}")
        if other is self._first:
            self._first, self._second = newest, other  # replay returns the records of the first copy

    def replay(self) -> Iterator[bytes]:
        """Return the records found at opening, oldest first. A second call returns none."""
        self._second.replay()
        return self._first.replay()

    @property
    def size_bytes(self) -> int:
        return self._first.size_bytes

    def append(self, records: Iterable[bytes]) -> None:
        """Append the records as one group. They are durable in both copies when this returns."""
        frame = encode_frame(records)
        self._first.write(frame)
        try:
            self._second.write(frame)
        except StorageFailed as failure:
            self._refuse_writes(failure)
            raise
        except DiskFailure:
            self._undo_first_write()
            raise
        second = self._begin_second_sync()
        try:
            try:
                self._first.sync()
            finally:
                # Wait for both syncs: none may be in progress when the caller receives an error.
                if second is None:
                    self._second.sync()
                else:
                    second.result()
        except StorageFailed as failure:
            self._refuse_writes(failure)
            raise

    def _begin_second_sync(self) -> Future[None] | None:
        """Begin to sync the second copy in another thread; None if no thread is available."""
        if self._background is None:
            return None
        synced: Future[None] = Future()

        def sync() -> None:
            try:
                self._second.sync()
            except BaseException as error:
                synced.set_exception(error)
            else:
                synced.set_result(None)

        try:
            self._background(sync)
        except RuntimeError:
            return None
        return synced

    def _undo_first_write(self) -> None:
        try:
            self._first.undo_write()
        except StorageFailed as failure:
            self._refuse_writes(failure)
            raise

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace the whole content of both copies by these records. A crash in between leaves both copies valid."""
        records = list(records)
        try:
            self._first.rewrite(records)
            self._second.rewrite(records)
        except StorageFailed as failure:
            self._refuse_writes(failure)
            raise

    def _refuse_writes(self, failure: StorageFailed) -> None:
        self._first.refuse_writes(failure)
        self._second.refuse_writes(failure)

    def close(self) -> None:
        self._first.close()
        self._second.close()


def _last_number(journal: Journal, number_of: NumberOf) -> int:
    return number_of(journal.records[-1]) if journal.records else 0
