"""A partition: one ordered log, the offset up to which it may be read, and those who wait for that offset to rise."""

from collections.abc import Callable
from functools import partial

from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.topic_config import TopicSettings
from storage.batch import BatchHeader
from storage.errors import (
    CorruptBatch,
    InvalidBatch,
    InvalidProducerEpoch,
    InvalidTimestamp,
    LogClosed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UnsupportedCompression,
)
from storage.format import NO_TIMESTAMP
from storage.log import Appended, Log
from storage.segment import LogRead

Watcher = Callable[["Partition"], None]

# The nearest class of an error's family counts.
_CODES: dict[type, ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    InvalidBatch: ErrorCode.INVALID_RECORD,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    LogClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_of(error: StorageError) -> ErrorCode:
    """The code a client is told; a disk that failed is one it may retry."""
    return next(_CODES[family] for family in type(error).__mro__ if family in _CODES)


class Partition:
    """Owns its log. Called from the event loop only.

    Records below `high_watermark` are as durable as the node promises, and only those are ever read. Watchers are told
    of every rise, in the loop turn in which it happens; they must be quick and must not append.
    """

    __slots__ = (
        "_clock",
        "_log",
        "_open_log",
        "_watchers",
        "appended_bytes",
        "high_watermark",
        "index",
        "leader_epoch",
        "settings",
        "stored_bytes",
        "topic_name",
    )

    def __init__(
        self,
        topic_name: str,
        index: int,
        leader_epoch: int,
        settings: TopicSettings,
        clock: Clock,
        open_log: Callable[[], Log],
    ) -> None:
        self.topic_name = topic_name
        self.index = index
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.appended_bytes = 0
        self.high_watermark = 0
        # What its files hold while the log is not open, as far as somebody looked.
        self.stored_bytes = 0
        self._clock = clock
        self._open_log = open_log
        self._log: Log | None = None
        self._watchers: set[Watcher] = set()

    @property
    def log(self) -> Log:
        """The log, opened on first use: a node with many topics opens few of them."""
        if self._log is None:
            self._log = self._open_log()
            self.high_watermark = self._log.log_end_offset
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of records; the log is not opened for it."""
        return self._log.size_bytes if self._log is not None else self.stored_bytes

    def append(self, batch: memoryview, header: BatchHeader) -> Appended:
        """The one door in. The batch gets its offset and epoch in place; raises StorageError or KafkaError."""
        settings = self.settings
        now_ms = self._clock.now_ms()
        size_bytes = len(batch)
        if size_bytes > settings.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
            )
        if not settings.is_log_append_time:
            ahead_ms = header.max_timestamp - now_ms
            is_far = ahead_ms > settings.timestamp_after_max_ms or -ahead_ms > settings.timestamp_before_max_ms
            if is_far and header.max_timestamp != NO_TIMESTAMP:
                raise KafkaError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"timestamp {header.max_timestamp} is too far from the server's time {now_ms}",
                )
        log = self._log or self.log
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.is_duplicate:
            self.appended_bytes += size_bytes
            self.advance(log.log_end_offset)
        return appended

    def advance(self, high_watermark: int) -> None:
        """Records below this offset have become readable: the one signal out."""
        self.high_watermark = high_watermark
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher(self)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> LogRead:
        """Whole batches from the one that holds `offset`, none at or above the high watermark."""
        log = self._log or self.log
        return log.read(offset, max_bytes, self.high_watermark, at_least_one=at_least_one)

    def cold_start(self, offset: int) -> Callable[[], None] | None:
        """What a thread has to run before a read from `offset` can begin without waiting for the disk, if anything."""
        log = self._log or self.log
        return None if log.is_start_warm(offset) else partial(log.warm_start, offset)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def on_reached(self, offset: int, call: Callable[[], None]) -> None:
        """Call once when the high watermark reaches `offset`; at once if it has."""
        if self.high_watermark >= offset:
            call()
            return

        def watcher(partition: "Partition") -> None:
            if partition.high_watermark >= offset:
                partition.unwatch(watcher)
                call()

        self.watch(watcher)
