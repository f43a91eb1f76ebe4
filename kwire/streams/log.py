"""The interface of one log of records, for code that does not need to know where the log is.

An implementation may keep the log in this process (`local`) or on another node. Everything that can take time completes
later: an append by a callback, a read by `NotReady`. What a property returns is what this process knows at the moment.

Offsets are Kafka's. Readers see committed data only: nothing at or above the last stable offset, and a read names the
aborted transactions whose batches the reader has to leave out.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError
from storage.batch import BatchHeader
from storage.transactions import AbortedTransaction

# Called once: with the offset of the first record when all records of the batch are committed, or with an error.
Appended = Callable[[int | KafkaError], None]
# Called once: with the error, if any.
Completed = Callable[[BaseException | None], None]
# Called with the log after its committed end rose, and when it is gone. It must be quick and must not append.
Watcher = Callable[["StreamLog"], None]


class Unreadable(KafkaError):
    """The records from `from_offset` up to, not including, `to_offset` are damaged; a reader can continue there."""

    def __init__(self, from_offset: int, to_offset: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"offsets {from_offset}..{to_offset - 1} cannot be read: {reason}")
        self.from_offset = from_offset
        self.to_offset = to_offset


class Bounds(NamedTuple):
    """`start` is the oldest offset that can be read; `committed_end` follows the last that can be (Kafka's last stable
    offset); `end` follows the last record that is known of, committed or not."""

    start: int
    committed_end: int
    end: int

    @property
    def newest(self) -> int:
        """The last offset that can be read; one below `start` if there is none.

        Like every offset it may hold no record: a transaction ends with a marker, and compaction leaves gaps.
        """
        return self.committed_end - 1


class Usage(NamedTuple):
    """The bytes of the log's records, and the largest timestamp of its newest records, None if it is not known."""

    size_bytes: int
    last_timestamp_ms: int | None


class StreamRead(NamedTuple):
    """Whole record batches, the first of which holds the offset that was asked for, or the first one after it.

    `records` is empty at the committed end. It may be a view of the log's own memory: it stays valid and unchanged as
    long as it is referenced, and keeps that memory alive for as long, so readers that wait for a client let go of it.
    `next_offset` is where the next read continues. `aborted` is in the order in which the transactions began.
    """

    records: memoryview
    next_offset: int
    aborted: Sequence[AbortedTransaction]


class NotReady(ABC):
    """The answer of a read that has to wait, for a disk, a thread or another node.

    Call `begin` or await `wait`, once; then make the same read again, in another turn of the event loop.
    """

    __slots__ = ()

    @abstractmethod
    def begin(self, completed: Completed) -> None:
        """Start the work; `completed` is called on the event loop when it is done, which may be at once.

        It is not called if the server stops first.
        """

    async def wait(self) -> None:
        """The same as a coroutine. Raises KafkaError if the log failed, and whatever else the work raised."""
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


class _NextTurn(NotReady):
    """Nothing to wait for."""

    __slots__ = ()

    def begin(self, completed: Completed) -> None:
        completed(None)

    async def wait(self) -> None:
        await asyncio.sleep(0)


# The answer of a read that has done enough for one turn of the event loop.
NEXT_TURN: NotReady = _NextTurn()


class StreamLog(ABC):
    """One log. Called from the event loop. There is one object per log and process, so it can be a dictionary's key.

    After its topic was deleted the object stays gone (`is_gone`), also when a topic of the same name is created: that
    one has another object and another `incarnation`.
    """

    __slots__ = ()

    # The name of its topic, and its number in it.
    topic: str
    partition: int
    # Changes when a topic is deleted and created again under the same name: offsets of another one mean nothing here.
    incarnation: str

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether its topic was deleted."""

    @property
    @abstractmethod
    def is_closing(self) -> bool:
        """Whether it takes no more appends, because its topic was deleted or is being deleted."""

    @property
    @abstractmethod
    def max_batch_bytes(self) -> int:
        """The size of the largest batch that an append may have."""

    # --- bounds

    @abstractmethod
    async def ready(self) -> None:
        """Wait until the bounds are known and a read can begin; raises KafkaError."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """Raises KafkaError if the log cannot be read, or its bounds are not known yet (see `ready`)."""

    @property
    @abstractmethod
    def start_offset(self) -> int:
        """The oldest offset as far as it is known now, 0 if it is not; never raises, unlike `bounds`."""

    @property
    @abstractmethod
    def committed_end(self) -> int:
        """The committed end as far as it is known now; never raises, unlike `bounds`."""

    @abstractmethod
    def usage(self) -> Usage:
        """Raises KafkaError."""

    # --- records

    @abstractmethod
    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        """Append one record batch, whole or not at all. `header` is the parsed header of `batch`.

        Batches are stored in the order of the calls. `appended` is called when the records are as durable as the topic
        promises and can be read, or when they were refused, and never twice; it may be called before this returns. It
        may append again. The log may change `batch` in place, and the caller must not change it any more. How much may
        wait is bounded by the callers.
        """

    @abstractmethod
    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        """Committed records from `offset` on: at least one batch if there is one, then at most `max_bytes`.

        `waits` counts how often this very read was answered with NotReady before, so that a read whose pages are
        evicted again and again is answered at last.

        Raises OffsetOutOfRange below `start`, Unreadable for damage, and KafkaError when the log is gone or fails. An
        offset beyond the committed end is answered like the committed end itself.
        """

    @abstractmethod
    async def offset_for_time(self, timestamp_ms: int) -> int:
        """The offset of the first committed record with this timestamp or a later one; the committed end if there is
        none. Raises KafkaError."""

    @abstractmethod
    def in_thread(self, work: Callable[[], None]) -> NotReady:
        """Work of a reader that would hold the event loop for long, such as decompression of a large batch."""

    # --- signals

    @abstractmethod
    def watch(self, watcher: Watcher) -> None: ...

    @abstractmethod
    def unwatch(self, watcher: Watcher) -> None:
        """It is not called again, not even for a rise that is being reported."""
