"""Validation of a client's batch: the checks that read its records, and the codec of its topic.

Most topics take a batch as it came. The limits of the others (keys where the topic is compacted, times of records,
sizes of records, another codec) ask for every record. `validate` is the whole of it. A request of a client takes
`validate_here` instead, which leaves batches that would hold the event loop to `ValidationWorker`: a process, because
a loop over records in Python holds the interpreter wherever it runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kwire.broker.worker_process import WorkerDied, WorkerProcess
from kwire.config.settings import ANY_RECORD_BYTES
from kwire.errors import ErrorCode, KafkaError
from kwire.topic_config import KEPT_COMPRESSION, TopicSettings
from storage.batch import BatchHeader, parse_header, set_max_timestamp, unfolded_records
from storage.errors import BatchTooLarge, BudgetExceeded, InvalidTimestamp
from storage.format import GZIP, HEADER_BYTES, LZ4, NO_TIMESTAMP, NONE, ZSTD
from storage.recompression import unfold
from storage.record_checks import RecordLimits, check_records

# Records of a batch where each of them is read: a few hundred hostile bytes decompress to millions of them.
RECORDS_VALIDATED_MAX = 100_000
# Decompressed bytes of a batch whose records are read, in multiples of max.message.bytes. A producer that is answered
# MESSAGE_TOO_LARGE sends smaller batches.
UNFOLDED_PER_MESSAGE_BYTE_MAX = 4

# What is validated on the event loop: work of at most some three milliseconds. Bytes are those of uncompressed records.
RECORDS_HERE_MAX = 5000
UNFOLDED_HERE_BYTES_MAX = 512 * 1024
RECOMPRESSED_HERE_BYTES_MAX = 128 * 1024
# The same for gzip, and for levels above a codec's default.
SLOWLY_RECOMPRESSED_HERE_BYTES_MAX = 16 * 1024
# Records of one of the many batches of a request that is handled in one go.
LIGHT_RECORDS_MAX = 200
# Batches that are copied for the worker process at a time: the one it works on, and the next.
WORKER_CALLS_MAX = 2

# The defaults of `compression.lz4.level` and `compression.zstd.level`.
_FAST_LEVELS = {LZ4: 9, ZSTD: 3}

# The batch to store, in memory that may be written to, and its header.
Validated = tuple[memoryview, BatchHeader]
# Raises StorageError, and TooLongForLoop if it is limited to what the event loop can do.
Validate = Callable[[memoryview, BatchHeader, TopicSettings, int], Validated]


class TooLongForLoop(Exception):
    """The batch has not been validated because the worker process has to do it. Nothing has been changed."""


class Run(Protocol):
    """Runs a function of a module somewhere else: `WorkerProcess.run`."""

    def __call__(self, function: Any, *args: Any) -> Awaitable[Any]: ...


def validate(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int, unfolded_bytes_max: int | None = None
) -> Validated:
    """The batch as the topic stores it, except for its offset; raises StorageError.

    A largest timestamp in the header that is not the largest of the records is corrected in place, as in Kafka, once
    nothing is wrong with the batch. `unfolded_bytes_max` replaces the limit of the decompressed size.
    """
    if not _reads_records(header, settings, now_ms):
        if settings.is_event_topic:  # its schemas and its readers read them
            _check_count(header)
        return batch, header
    limits = _limits(settings, now_ms)
    if header.record_count > RECORDS_VALIDATED_MAX and header.max_timestamp > limits.latest_ms:
        raise InvalidTimestamp(
            f"Timestamp {header.max_timestamp} of the batch is out of range. The timestamp should be at most "
            f"{limits.latest_ms}"
        )
    _check_count(header)
    if unfolded_bytes_max is None:
        unfolded_bytes_max = settings.max_message_bytes * UNFOLDED_PER_MESSAGE_BYTE_MAX
    if _is_recompressed(header, settings):
        return _recompressed(batch, header, settings, limits, unfolded_bytes_max)
    if settings.record_bytes_max < ANY_RECORD_BYTES and header.compression:
        body = unfold(batch, header, budget_bytes=unfolded_bytes_max, record_bytes_max=settings.record_bytes_max).body
    else:
        body = unfolded_records(batch, header, unfolded_bytes_max)
    largest = check_records(body, header, limits)
    if largest != header.max_timestamp and not settings.is_log_append_time:
        header = set_max_timestamp(batch, largest)
    return batch, header


def validate_here(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """The same for the event loop; raises TooLongForLoop if it would take long."""
    is_read = _reads_records(header, settings, now_ms)
    if not is_read or header.record_count > RECORDS_VALIDATED_MAX:  # the latter is refused without a look
        return validate(batch, header, settings, now_ms)
    if header.record_count > RECORDS_HERE_MAX:
        raise TooLongForLoop
    if _is_recompressed(header, settings):
        here_max = _recompressed_here_bytes_max(settings)
    elif header.compression:
        here_max = UNFOLDED_HERE_BYTES_MAX
    else:
        return validate(batch, header, settings, now_ms)
    if len(batch) > here_max:
        raise TooLongForLoop
    if settings.max_message_bytes * UNFOLDED_PER_MESSAGE_BYTE_MAX <= here_max:
        return validate(batch, header, settings, now_ms)
    try:
        return validate(batch, header, settings, now_ms, here_max)
    except BudgetExceeded:
        raise TooLongForLoop from None


def is_light(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    """Whether `validate_here` takes little time for the batch, and certainly does not raise TooLongForLoop."""
    if not _reads_records(header, settings, now_ms) or header.record_count > RECORDS_VALIDATED_MAX:
        return True
    is_unfolded = header.compression or _is_recompressed(header, settings)
    return not is_unfolded and header.record_count <= LIGHT_RECORDS_MAX


def as_validated(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """In the place of `validate` for a batch that has been validated before."""
    return batch, header


def in_codec_of_topic(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """In the place of `validate` for a batch that this server has built: only the codec may have to change."""
    return validate(batch, header, settings, now_ms) if _is_recompressed(header, settings) else (batch, header)


class ValidationWorker:
    """Validates batches in a process of its own, one after the other, in the order in which they were given."""

    def __init__(self, run: Run | None = None) -> None:
        """`run` replaces the process."""
        self._process = WorkerProcess()
        self._run = run or self._process.run
        self._calls = asyncio.Semaphore(WORKER_CALLS_MAX)
        self._is_closed = False
        self.batch_count = 0

    async def validate(self, batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
        """As the function of this name; raises KafkaError besides, if the process died or the server is stopping."""
        async with self._calls:
            self.batch_count += 1
            try:
                changed = await self._run(validate_copy, bytes(batch), settings, now_ms)
            except WorkerDied as error:
                if self._is_closed:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping") from error
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the validation of the batch was interrupted, send it again"
                ) from error
        if changed is None:
            return batch, header
        own = memoryview(bytearray(changed))
        return own, parse_header(own)

    async def close(self) -> None:
        self._is_closed = True
        await self._process.close()


def validate_copy(batch: bytes, settings: TopicSettings, now_ms: int) -> bytes | None:
    """What the process does: the batch to store, or None if it is to be stored as it came."""
    copy = memoryview(bytearray(batch))
    validated, _ = validate(copy, parse_header(copy), settings, now_ms)
    return None if validated == batch else bytes(validated)


def _reads_records(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    """Whether anything asks for the records of this batch."""
    if settings.is_compacted or _is_recompressed(header, settings):
        return True
    if settings.record_bytes_max < ANY_RECORD_BYTES and header.compression:
        return True
    if settings.is_log_append_time:
        return False
    return (
        settings.judges_each_record
        or header.max_timestamp == NO_TIMESTAMP
        or header.max_timestamp - now_ms > settings.timestamp_after_max_ms
    )


def _is_recompressed(header: BatchHeader, settings: TopicSettings) -> bool:
    # Control batches stay as their coordinator wrote them, as in Kafka.
    return settings.compression not in (KEPT_COMPRESSION, header.compression) and not header.is_control


def _recompressed_here_bytes_max(settings: TopicSettings) -> int:
    codec, level = settings.compression, settings.compression_level
    is_slow = codec == GZIP or (codec in (LZ4, ZSTD) and level not in (None, _FAST_LEVELS[codec]))
    return SLOWLY_RECOMPRESSED_HERE_BYTES_MAX if is_slow else RECOMPRESSED_HERE_BYTES_MAX


def _limits(settings: TopicSettings, now_ms: int) -> RecordLimits:
    if settings.is_log_append_time:
        return RecordLimits(settings.is_compacted)
    return RecordLimits(
        settings.is_compacted, now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    )


def _check_count(header: BatchHeader) -> None:
    if header.record_count > RECORDS_VALIDATED_MAX:
        raise BatchTooLarge(
            f"the batch has {header.record_count} records, this topic takes at most {RECORDS_VALIDATED_MAX} in a batch"
        )


def _recompressed(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, limits: RecordLimits, unfolded_bytes_max: int
) -> Validated:
    codec, max_bytes = settings.compression, settings.max_message_bytes
    if codec == NONE:
        # The result is known to be too large as soon as the records are.
        unfolded_bytes_max = min(unfolded_bytes_max, max_bytes - HEADER_BYTES)
    unfolded = unfold(batch, header, budget_bytes=unfolded_bytes_max, record_bytes_max=settings.record_bytes_max)
    check_records(unfolded.body, unfolded.header, limits)
    batch, header = unfolded.fold(codec, settings.compression_level)
    if len(batch) > max_bytes:
        raise BatchTooLarge(
            f"the batch has {len(batch)} bytes in the codec of its topic, max.message.bytes is {max_bytes}"
        )
    return batch, header
