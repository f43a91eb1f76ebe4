"""The exceptions of the storage package.

The packages that use storage translate them into Kafka error codes. Public methods wrap ``OSError`` in
:class:`DiskFailure` unless their docstring says that they raise ``OSError``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

# The process, or the machine, has no file descriptor left. Only calls that open a file raise these errors, never a
# sync.
NO_DESCRIPTOR_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class StorageError(Exception):
    """Base class of all exceptions of the storage package."""


class CorruptBatch(StorageError):
    """The bytes are not a valid batch: truncated, wrong size or wrong CRC."""


# An error names at most this many records of a batch.
PROBLEMS_NAMED_MAX: Final = 1000


class RecordProblem(NamedTuple):
    """An invalid record of a batch. ``number`` is its index in the batch, from 0."""

    number: int
    message: str


class InvalidBatch(StorageError):
    """The batch is intact, but may not be stored. ``problems`` names the invalid records, if any."""

    def __init__(self, message: str = "", problems: Sequence[RecordProblem] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class UnsupportedMagic(InvalidBatch):
    """The batch is of an older message format (magic 0 or 1)."""


class UnsupportedCompression(InvalidBatch):
    """The attribute bits name a codec that does not exist."""


class InvalidTimestamp(InvalidBatch):
    """Record timestamps are outside the topic's limits, or the timestamp type is one that only the broker may set."""


class DecompressionFailed(CorruptBatch):
    """The payload cannot be decompressed with its codec."""


class BudgetExceeded(StorageError):
    """The payload decompresses to more bytes than the caller allows."""


class BatchTooLarge(StorageError):
    """The batch has more bytes or records than its topic allows."""


class OffsetOutOfRange(StorageError):
    """An offset is below the log start offset or above the log end offset."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class UnexpectedOffset(StorageError):
    """A replicated batch does not begin at the log end offset of the replica."""


class QuarantinedRange(StorageError):
    """A read requested an offset whose bytes are damaged. The offsets before and after the range can be read."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offsets {start_offset}..{end_offset - 1} are damaged and cannot be read")
        self.start_offset = start_offset
        self.end_offset = end_offset


class OutOfOrderSequence(StorageError):
    """A batch of an idempotent producer does not begin with the expected sequence."""


class InvalidProducerEpoch(StorageError):
    """The producer has been replaced by a newer instance of itself."""


class CoordinatorFenced(StorageError):
    """A transaction marker was sent by a coordinator that a newer coordinator has replaced."""


class InvalidTransactionState(StorageError):
    """A producer with an open transaction sent a batch that is not part of that transaction."""


class DiskFailure(StorageError):
    """A system call failed. Nothing was changed, and the operation may be retried."""

    def __init__(self, message: str, error_number: int | None = None) -> None:
        super().__init__(message)
        self.error_number = error_number


class StorageFailed(DiskFailure):
    """A sync failed. The state of the disk is unknown, so the file accepts no writes until the next start.

    A second sync of the same file may report success although bytes are lost, so no second sync is tried.
    """


class FileSystemFailed(StorageFailed):
    """A sync of a whole file system failed. Any log in ``data_dir`` may have lost pages, even one that did not sync."""

    def __init__(self, message: str, error_number: int | None, data_dir: str) -> None:
        super().__init__(message, error_number)
        self.data_dir = data_dir

    def __reduce__(self) -> tuple[type[FileSystemFailed], tuple[str, int | None, str]]:
        return FileSystemFailed, (str(self), self.error_number, self.data_dir)


class LogClosed(StorageError):
    """The log was closed or deleted while the caller still held it."""


class PartitionOffline(StorageError):
    """The folder of a partition is missing, or it is unknown to which topic the folder belongs.

    The message is for clients. ``report`` is for the operator: it names the directory and the remedy.
    """

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details

    @property
    def report(self) -> str:
        return f"{self} {self.details}"

    def __reduce__(self) -> tuple[type[PartitionOffline], tuple[str, str]]:
        return PartitionOffline, (str(self), self.details)


class UnknownFolders(StorageError):
    """A data directory holds partition folders that are not in the catalogue. The message names the remedies."""


class DataDirectoryLocked(StorageError):
    """Another process owns the data directory."""


class DamagedLog(StorageError):
    """Stored bytes were changed. Offsets before the damage are served, and nothing is written or truncated."""


class JournalDamaged(StorageError):
    """A journal frame that may have been acknowledged cannot be read."""


def failed_sync(what: str, error: OSError | DiskFailure) -> DiskFailure:
    """The error of a failed sync: :class:`StorageFailed`, unless no file descriptor was available.

    Without a descriptor the sync has not begun, so no page was reported lost, and the result of a retry is reliable.
    """
    number = error.errno if isinstance(error, OSError) else error.error_number
    kind = DiskFailure if number in NO_DESCRIPTOR_ERRORS else StorageFailed
    return kind(f"{what}: {error}", number)


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Wrap an ``OSError`` raised in the block in :class:`DiskFailure`. ``what`` names the operation."""
    try:
        yield
    except OSError as error:
        raise DiskFailure(f"{what}: {error}", error.errno) from error
