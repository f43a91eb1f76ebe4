"""StreamLog: the interface of one log of records. It does not depend on where the log is stored.

An implementation may keep the log in this process (`local`) or on another node. Operations that may take long do not
block: an append calls a callback when it is complete, and a read that has to wait returns `NotReady`. Properties return
the values that this process knows at the moment.

Offsets are Kafka offsets. A read returns only records below the last stable offset. These include batches of aborted
transactions, which the reader has to skip. For this purpose, each read also returns a list of the aborted transactions.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import BatchHeader
from storage.log.transactions import AbortedTransaction

# Called once: with the offset of the first record when all records of the batch are committed, or with an error.
Appended = Callable[[int | KafkaError], None]
# Called once, when the work has ended: with None, or with the error.
Completed = Callable[[BaseException | None], None]
# Called with the log after its committed end has increased, and after its topic was deleted. A watcher must return
# quickly and must not append.
Watcher = Callable[["StreamLog"], None]


class Unreadable(KafkaError):
    """The records from `from_offset` up to, not including, `to_offset` are damaged.

    A reader can continue at `to_offset`.
    """

    def __init__(self, from_offset: int, to_offset: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"offsets {from_offset}..{to_offset - 1} cannot be read: {reason}")
        self.from_offset = from_offset
        self.to_offset = to_offset


class Bounds(NamedTuple):
    """The offsets that bound a log.

    `start` is the oldest offset that can be read. `committed_end` is one more than the newest offset that can be read
    (Kafka's last stable offset). `end` is one more than the offset of the last known record, committed or not.
    """

    start: int
    committed_end: int
    end: int

    @property
    def newest(self) -> int:
        """The newest offset that can be read; `start - 1` if there is none.

        There may be no event at this offset: it may belong to a transaction marker, or compaction may have removed the
        record.
        """
        return self.committed_end - 1


class Usage(NamedTuple):
    """The size of the log's records, and the largest timestamp of its newest records (None if not known)."""

    size_bytes: int
    last_timestamp_ms: int | None


class StreamRead(NamedTuple):
    """The result of a read: whole record batches.

    The first batch holds the requested offset, or the first existing offset after it. `records` is empty if there is no
    batch before the committed end. `next_offset` is the offset at which the next read continues. `aborted` lists the
    aborted transactions in the order in which they began.

    `records` may be a view of the log's own memory. The view stays valid and unchanged while it is referenced. It also
    keeps that memory alive, so a reader that waits for a client must release the view.
    """

    records: memoryview
    next_offset: int
    aborted: Sequence[AbortedTransaction]


class NotReady(ABC):
    """The result of a read that has to wait for a disk, a thread or another node.

    Call `begin` or await `wait`, but only once. When the work is complete, repeat the same read in a later iteration of
    the event loop.
    """

    __slots__ = ()

    @abstractmethod
    def begin(self, completed: Completed) -> None:
        """Start the work, and call `completed` on the event loop when the work has ended.

        `completed` may be called before this method returns. It is not called if the server stops first.
        """

    async def wait(self) -> None:
        """Start the work, and wait until it has ended. Raises the error of the work, or KafkaError if the log fails."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(error: BaseException | None) -> None:
            if finished.done():  # cancelled
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)

        self.begin(complete)
        await finished


class _NextIteration(NotReady):
    """The result of a read that has nothing to wait for, but has to yield to the event loop."""

    __slots__ = ()

    def begin(self, completed: Completed) -> None:
        completed(None)

    async def wait(self) -> None:
        await asyncio.sleep(0)


# The result of a read that has done enough work for one iteration of the event loop.
NEXT_ITERATION: NotReady = _NextIteration()


class StreamLog(ABC):
    """One log. Use it only in the event loop's thread.

    A process has only one object per log, so the object can be a dictionary key. After the topic was deleted, `is_gone`
    stays True even if a topic of the same name is created. The log of the new topic has another object and another
    `incarnation`.
    """

    __slots__ = ()

    # The name of the log's topic, and the index of its partition.
    topic: str
    partition: int
    # Changes when a topic is deleted and created again under the same name. Offsets are valid for one incarnation only.
    incarnation: str

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether the topic of the log was deleted."""

    @property
    @abstractmethod
    def is_closing(self) -> bool:
        """Whether appends are refused because the topic of the log was deleted or is being deleted."""

    @property
    @abstractmethod
    def max_batch_bytes(self) -> int:
        """The largest batch size that `append` accepts."""

    # --- bounds

    @abstractmethod
    async def ready(self) -> None:
        """Wait until the bounds are known and a read can begin; raises KafkaError."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """The bounds of the log. Raises KafkaError if the log cannot be read. Await `ready` before the first call."""

    @property
    @abstractmethod
    def start_offset(self) -> int:
        """The oldest offset that can be read, or 0 if it is not known yet. Unlike `bounds`, this never raises."""

    @property
    @abstractmethod
    def committed_end(self) -> int:
        """The committed end as far as this process knows it. Unlike `bounds`, this never raises."""

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """One more than the newest offset that `read_uncommitted` returns. Await `ready` before the first call."""

    @abstractmethod
    def usage(self) -> Usage:
        """The size of the log and its newest timestamp. Raises KafkaError."""

    # --- records

    @abstractmethod
    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        """Append one record batch, completely or not at all. `header` is the parsed header of `batch`.

        Batches are stored in the order of the calls. `appended` is called exactly once: when the records are as durable
        as the topic requires and can be read, or when they were refused. `appended` may be called before this method
        returns, and it may append again. The log may change `batch` in place, and the caller must not change it after
        this call. The callers limit the number of bytes that wait to be appended.
        """

    @abstractmethod
    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        """Read batches of committed records from `offset` on, up to `max_bytes`.

        Returns at least one batch if there is one, even if it is larger than `max_bytes`. `waits` is the number of
        times that this read has returned NotReady. The log uses this number to limit the retries of a read whose pages
        are evicted before the read is repeated.

        Raises OffsetOutOfRange if `offset` is before the start of the log, Unreadable if the records are damaged, and
        KafkaError if the log was deleted or cannot be read. At the committed end and after it, the result has no
        records.
        """

    @abstractmethod
    def read_uncommitted(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        """As `read`, up to the high watermark. It includes open transactions, and `aborted` is empty."""

    @abstractmethod
    async def offset_for_time(self, timestamp_ms: int) -> int:
        """Return the offset of the first committed record with this timestamp or a later one.

        Returns the committed end if there is no such record. Raises KafkaError.
        """

    @abstractmethod
    def in_thread(self, work: Callable[[], None]) -> NotReady:
        """Return a NotReady that runs `work` in a thread.

        Readers use it for work that would block the event loop, such as the decompression of a large batch.
        """

    # --- signals

    @abstractmethod
    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever the committed end rises, and when the topic is deleted."""

    @abstractmethod
    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling `watcher` immediately, even if the watchers of the log are being called now."""
