"""Everything that can go wrong in the log on disk, as one tree of exceptions.

The rooms above translate these into Kafka error codes; nothing here knows a code. Raw ``OSError`` never leaves the
package: it is wrapped in :class:`DiskFailure` at the door of the object whose promise it breaks.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

# The process, or the machine, has no file descriptor left. Only calls that open a file fail so, never a sync.
NO_DESCRIPTOR_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class StorageError(Exception):
    """The root of the tree."""


class CorruptBatch(StorageError):
    """The bytes are not a whole batch: truncated, wrong size or wrong CRC."""


# Records of one batch that are named in an error.
PROBLEMS_NAMED_MAX: Final = 1000


class RecordProblem(NamedTuple):
    """What is wrong with one record of a batch; ``number`` is its place in it, from 0."""

    number: int
    message: str


class InvalidBatch(StorageError):
    """The bytes are whole, but a batch like this may not be stored; ``problems`` names the records at fault, if any."""

    def __init__(self, message: str = "", problems: Sequence[RecordProblem] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class UnsupportedMagic(InvalidBatch):
    """The batch is of an older message format (magic 0 or 1)."""


class UnsupportedCompression(InvalidBatch):
    """The attribute bits name a codec that does not exist."""


class InvalidTimestamp(InvalidBatch):
    """Times of records are outside the topic's limits, or the timestamp type is one that only the broker may set."""


class DecompressionFailed(CorruptBatch):
    """The payload is not what its codec says it is."""


class BudgetExceeded(StorageError):
    """The payload unfolds into more bytes than the caller is ready to hold."""


class BatchTooLarge(StorageError):
    """The batch has more bytes or records than its topic takes."""


class OffsetOutOfRange(StorageError):
    """A read asked for an offset below the log start or above the log end."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class QuarantinedRange(StorageError):
    """A read asked for an offset whose bytes are damaged; what lies before and behind can be read."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offsets {start_offset}..{end_offset - 1} are damaged and cannot be read")
        self.start_offset = start_offset
        self.end_offset = end_offset


class OutOfOrderSequence(StorageError):
    """An idempotent producer's batch does not follow its last one."""


class InvalidProducerEpoch(StorageError):
    """The producer has been replaced by a newer instance of itself."""


class CoordinatorFenced(StorageError):
    """A transaction's marker comes from a coordinator that has been replaced by a newer one."""


class InvalidTransactionState(StorageError):
    """A producer whose transaction is open sent a batch that is no part of it."""


class DiskFailure(StorageError):
    """The operating system refused; nothing was changed and a later try may work."""

    def __init__(self, message: str, error_number: int | None = None) -> None:
        super().__init__(message)
        self.error_number = error_number


class StorageFailed(DiskFailure):
    """A sync failed: what the disk holds is unknown, so the file takes no more writes until the next start.

    A second sync of the same file may report success although the bytes are lost, so it is never tried.
    """


class FileSystemFailed(StorageFailed):
    """A sync of a whole file system failed: each log in ``data_dir`` may have lost pages, also one without a part."""

    def __init__(self, message: str, error_number: int | None, data_dir: str) -> None:
        super().__init__(message, error_number)
        self.data_dir = data_dir

    def __reduce__(self) -> tuple[type[FileSystemFailed], tuple[str, int | None, str]]:
        return FileSystemFailed, (str(self), self.error_number, self.data_dir)


class LogClosed(StorageError):
    """The log was closed or deleted while somebody still held it."""


class PartitionOffline(StorageError):
    """The folder of a partition is lost, or nobody can tell whose it is. The message is for clients, ``report`` for
    the operator: it names the directory and the remedy."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details

    @property
    def report(self) -> str:
        return f"{self} {self.details}"

    def __reduce__(self) -> tuple[type[PartitionOffline], tuple[str, str]]:
        return PartitionOffline, (str(self), self.details)


class UnknownFolders(StorageError):
    """A data directory holds partition folders that the catalogue does not know; the message names the remedies."""


class DataDirectoryLocked(StorageError):
    """Another process owns the data directory."""


class DamagedLog(StorageError):
    """Stored bytes changed behind our back; what lies before the damage is served, nothing is written or cut."""


class JournalDamaged(StorageError):
    """A journal frame that was once acknowledged is unreadable."""


def failed_sync(what: str, error: OSError | DiskFailure) -> DiskFailure:
    """The error of file work that ends in a sync: :class:`StorageFailed`, unless no descriptor was to be had.

    Without a descriptor the sync has not begun, so no page was reported lost, and a later try can be believed.
    """
    number = error.errno if isinstance(error, OSError) else error.error_number
    kind = DiskFailure if number in NO_DESCRIPTOR_ERRORS else StorageFailed
    return kind(f"{what}: {error}", number)


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Wrap an ``OSError`` raised inside in :class:`DiskFailure`; ``what`` says what was tried."""
    try:
        yield
    except OSError as error:
        raise DiskFailure(f"{what}: {error}", error.errno) from error
