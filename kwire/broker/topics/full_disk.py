"""Commits that have to succeed on a full disk, for example because they delete topics and so free disk space."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kwire.concurrency.disk_lanes import Lane
from storage.data_directory.disk_reserve import is_full
from storage.errors import DiskFailure

R = TypeVar("R")


class ReserveHolder(Protocol):
    """A store with reserved disk space that can be released."""

    def release_reserve(self) -> bool: ...


async def commit_with_reserve(store: ReserveHolder, lane: Lane, commit: Callable[[], Awaitable[R]]) -> R:
    """Call and await `commit`. While it fails because the disk is full, release reserved space and call it again.

    `lane` runs the release. Raises the error of `commit` if the disk is not full or no reserve is left.
    """
    while True:
        try:
            return await commit()
        except DiskFailure as error:
            if not is_full(error) or not await lane.run(store.release_reserve):
                raise
