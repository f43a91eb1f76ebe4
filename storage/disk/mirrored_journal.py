"""Two copies of one journal, so that damage to one of them is repaired from the other.

A commit is written to both files and acknowledged when both are synced, so either one holds everything that was ever
acknowledged. At the start they are compared: a copy that is missing, empty, damaged or behind the other is written
anew from the sound one and :attr:`MirroredJournal.repairs` names it. A damaged file is kept beside the new one.
A kill between the two writes leaves a commit in one of them that nobody was told of: it counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from storage.errors import DiskFailure, JournalDamaged, StorageFailed, disk_errors
from storage.files import Files
from storage.journal import Journal, encode_frame
from storage.settings import Background

# The catalogue's two copies, in the first data directory.
JOURNAL_NAME: Final = "metastore.journal"
MIRROR_NAME: Final = "metastore.mirror"
DAMAGED_SUFFIX: Final = ".damaged"

# The number of a record's commit; commits are numbered upwards.
NumberOf = Callable[[bytes], int]


class MirroredJournal:
    """The same calls as a single :class:`~storage.journal.Journal` has, used by one thread.

    ``background`` syncs the second copy while the caller's thread syncs the first; without it they follow each other.
    """

    def __init__(self, first: Journal, second: Journal, background: Background | None = None) -> None:
        self._first = first
        self._second = second
        self._background = background
        # What was repaired when the copies were opened, one sentence each.
        self.repairs: list[str] = []

    @classmethod
    def open(
        cls, path: str, mirror_path: str, files: Files, number_of: NumberOf, background: Background | None = None
    ) -> MirroredJournal:
        """Open or create both; raises :class:`JournalDamaged` when neither can be read."""
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
                # An empty file beside a damaged one is not a copy of it.
                if not source.records:
                    raise damage[lost_path]
                with disk_errors(f"set {lost_path} aside"):
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
        self.repairs.append(f"{what}; written anew from {os.path.basename(newest.path)}")
        if other is self._first:
            self._first, self._second = newest, other  # the one that was read is replayed

    def replay(self) -> Iterator[bytes]:
        """The records found at opening, oldest first; they are handed out once."""
        self._second.replay()
        return self._first.replay()

    @property
    def size_bytes(self) -> int:
        return self._first.size_bytes

    def append(self, records: Iterable[bytes]) -> None:
        """Add the records as one group; they are durable in both copies when this returns."""
        frame = encode_frame(records)
        self._first.write(frame)
        try:
            self._second.write(frame)
        except StorageFailed as failure:
            self._refuse_after(failure)
            raise
        except DiskFailure:
            self._take_back_first()
            raise
        second = self._begin_second_sync()
        try:
            try:
                self._first.sync()
            finally:
                # Both are waited for: nothing may still be under way when the caller hears of a failure.
                if second is None:
                    self._second.sync()
                else:
                    second.result()
        except StorageFailed as failure:
            self._refuse_after(failure)
            raise

    def _begin_second_sync(self) -> Future[None] | None:
        """None: it has not begun, because there is no other thread for it."""
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

    def _take_back_first(self) -> None:
        try:
            self._first.take_back()
        except StorageFailed as failure:
            self._refuse_after(failure)
            raise

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace the whole content of both by these records. A crash between the two leaves both good."""
        records = list(records)
        try:
            self._first.rewrite(records)
            self._second.rewrite(records)
        except StorageFailed as failure:
            self._refuse_after(failure)
            raise

    def _refuse_after(self, failure: StorageFailed) -> None:
        self._first.refuse_after(failure)
        self._second.refuse_after(failure)

    def close(self) -> None:
        self._first.close()
        self._second.close()


def _last_number(journal: Journal, number_of: NumberOf) -> int:
    return number_of(journal.records[-1]) if journal.records else 0
