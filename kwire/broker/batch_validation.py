"""Validation of a client's batch: the checks that read its records, and recompression to the topic's codec.

Most topics store a batch unchanged. Some settings require that every record is read: compaction (records need keys),
limits on timestamps or record sizes, or another codec. `validate` makes all checks. Requests of clients use
`validate_on_loop`, which refuses batches that would block the event loop. `ValidationWorker` validates these batches in
another process, because a thread that loops over records in Python would hold the interpreter lock.

The header and the CRC are checked before, in `kwire/handlers/produce/admission.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kwire.concurrency.worker_process import WorkerDied, WorkerProcess
from kwire.config.resources.topic import PRODUCER_COMPRESSION, TopicSettings
from kwire.config.settings.broker import RECORD_BYTES_UNLIMITED
from kwire.errors import ErrorCode, KafkaError
from storage.batch.format import GZIP, HEADER_BYTES, LZ4, NO_TIMESTAMP, NONE, ZSTD
from storage.batch.recompression import decompress_batch
from storage.batch.record_batch import BatchHeader, decompress_records, parse_header, set_max_timestamp
from storage.batch.record_checks import RecordLimits, check_records
from storage.errors import BatchTooLarge, BudgetExceeded, InvalidTimestamp

# The maximum number of records in a batch whose records are read. A few hundred hostile bytes can decompress to
# millions of records.
RECORDS_VALIDATED_MAX = 100_000
# The limit on the decompressed size of a batch whose records are read, as a multiple of max.message.bytes. A producer
# that gets MESSAGE_TOO_LARGE sends smaller batches.
UNFOLDED_PER_MESSAGE_BYTE_MAX = 4

# The limits for validation on the event loop. Within these limits, a validation takes at most about three milliseconds.
# The limits in bytes are sizes of uncompressed records.
RECORDS_ON_LOOP_MAX = 5000
UNFOLDED_ON_LOOP_BYTES_MAX = 512 * 1024
RECOMPRESSED_ON_LOOP_BYTES_MAX = 128 * 1024
# The limit for recompression with gzip, or with a compression level other than the codec's default.
SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX = 16 * 1024
# The maximum number of records that are read in a batch for which `is_light` returns True.
LIGHT_RECORDS_MAX = 200
# The maximum number of batches that are copied for the worker process at a time: the current batch and the next.
WORKER_CALLS_MAX = 2

# The defaults of `compression.lz4.level` and `compression.zstd.level`.
_FAST_LEVELS = {LZ4: 9, ZSTD: 3}

# The batch to store, in writable memory, and its header.
Validated = tuple[memoryview, BatchHeader]
# A function that validates a batch. It raises StorageError, and `validate_on_loop` also raises TooLongForLoop.
Validate = Callable[[memoryview, BatchHeader, TopicSettings, int], Validated]


class TooLongForLoop(Exception):
    """The batch was not validated, because that would block the event loop. The worker process has to validate it."""


class Run(Protocol):
    """Runs a module-level function in another process. `WorkerProcess.run` implements it."""

    def __call__(self, function: Any, *args: Any) -> Awaitable[Any]: ...


def validate(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int, unfolded_bytes_max: int | None = None
) -> Validated:
    """Validate a batch, and return it in the form in which the topic stores it. Raises StorageError.

    The base offset is not set yet. If the records are read and the header's max timestamp is not the largest timestamp
    of the records, the header is corrected in place, as in Kafka. `unfolded_bytes_max` replaces the default limit on
    the decompressed size.
    """
    if not _reads_records(header, settings, now_ms):
        if settings.is_event_topic:  # the event store reads the records later
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
    if settings.record_bytes_max < RECORD_BYTES_UNLIMITED and header.compression:
        body = decompress_batch(
            batch, header, budget_bytes=unfolded_bytes_max, record_bytes_max=settings.record_bytes_max
        ).body
    else:
        body = decompress_records(batch, header, unfolded_bytes_max)
    largest = check_records(body, header, limits)
    if largest != header.max_timestamp and not settings.is_log_append_time:
        header = set_max_timestamp(batch, largest)
    return batch, header


def validate_on_loop(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """Validate a batch on the event loop. Raises TooLongForLoop if that would take too long."""
    is_read = _reads_records(header, settings, now_ms)
    if not is_read or header.record_count > RECORDS_VALIDATED_MAX:  # `validate` reads no records in these cases
        return validate(batch, header, settings, now_ms)
    if header.record_count > RECORDS_ON_LOOP_MAX:
        raise TooLongForLoop
    if _is_recompressed(header, settings):
        on_loop_max = _recompressed_on_loop_bytes_max(settings)
    elif header.compression:
        on_loop_max = UNFOLDED_ON_LOOP_BYTES_MAX
    else:
        return validate(batch, header, settings, now_ms)
    if len(batch) > on_loop_max:
        raise TooLongForLoop
    if settings.max_message_bytes * UNFOLDED_PER_MESSAGE_BYTE_MAX <= on_loop_max:
        return validate(batch, header, settings, now_ms)
    try:
        return validate(batch, header, settings, now_ms, on_loop_max)
    except BudgetExceeded:
        raise TooLongForLoop from None


def is_light(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    """Whether `validate_on_loop` reads at most LIGHT_RECORDS_MAX uncompressed records of the batch.

    For such a batch, it never raises TooLongForLoop.
    """
    if not _reads_records(header, settings, now_ms) or header.record_count > RECORDS_VALIDATED_MAX:
        return True
    is_unfolded = header.compression or _is_recompressed(header, settings)
    return not is_unfolded and header.record_count <= LIGHT_RECORDS_MAX


def skip_validation(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """Return the batch unchanged. Replaces `validate` for a batch that has already been validated."""
    return batch, header


def recompress_only(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
    """Change only the codec, if necessary. Replaces `validate` for a batch that this server has built."""
    return validate(batch, header, settings, now_ms) if _is_recompressed(header, settings) else (batch, header)


class ValidationWorker:
    """Validates batches in another process, one after the other, in the order of the calls."""

    def __init__(self, run: Run | None = None) -> None:
        """`run` replaces `WorkerProcess.run`."""
        self._process = WorkerProcess()
        self._run = run or self._process.run
        self._calls = asyncio.Semaphore(WORKER_CALLS_MAX)
        self._is_closed = False
        self.batch_count = 0

    async def validate(self, batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
        """Call the function `validate` in the worker process.

        Raises StorageError like that function, and KafkaError if the process died or the server stops.
        """
        async with self._calls:
            self.batch_count += 1
            try:
                changed = await self._run(validate_copy, bytes(batch), settings, now_ms)
            except WorkerDied as error:
                if self._is_closed:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping") from error
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the validation of the batch was interrupted, try again"
                ) from error
        if changed is None:
            return batch, header
        own = memoryview(bytearray(changed))
        return own, parse_header(own)

    async def close(self) -> None:
        self._is_closed = True
        await self._process.close()


def validate_copy(batch: bytes, settings: TopicSettings, now_ms: int) -> bytes | None:
    """Return the batch to store, or None if it is stored unchanged. Runs in the worker process."""
    copy = memoryview(bytearray(batch))
    validated, _ = validate(copy, parse_header(copy), settings, now_ms)
    return None if validated == batch else bytes(validated)


def _reads_records(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    """Whether the validation has to read the records of this batch."""
    if settings.is_compacted or _is_recompressed(header, settings):
        return True
    if settings.record_bytes_max < RECORD_BYTES_UNLIMITED and header.compression:
        return True
    if settings.is_log_append_time:
        return False
    return (
        settings.checks_each_timestamp
        or header.max_timestamp == NO_TIMESTAMP
        or header.max_timestamp - now_ms > settings.timestamp_after_max_ms
    )


def _is_recompressed(header: BatchHeader, settings: TopicSettings) -> bool:
    # As in Kafka, control batches are stored as the coordinator wrote them.
    codec = settings.compression
    return codec != PRODUCER_COMPRESSION and codec != header.compression and not header.is_control


def _recompressed_on_loop_bytes_max(settings: TopicSettings) -> int:
    codec, level = settings.compression, settings.compression_level
    is_slow = codec == GZIP or (codec in (LZ4, ZSTD) and level not in (None, _FAST_LEVELS[codec]))
    return SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX if is_slow else RECOMPRESSED_ON_LOOP_BYTES_MAX


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
        # The stored batch is uncompressed, so max.message.bytes also limits the size of the decompressed records.
        unfolded_bytes_max = min(unfolded_bytes_max, max_bytes - HEADER_BYTES)
    unfolded = decompress_batch(
        batch, header, budget_bytes=unfolded_bytes_max, record_bytes_max=settings.record_bytes_max
    )
    check_records(unfolded.body, unfolded.header, limits)
    batch, header = unfolded.compress_with(codec, settings.compression_level)
    if len(batch) > max_bytes:
        raise BatchTooLarge(
            f"the batch has {len(batch)} bytes in the codec of its topic, max.message.bytes is {max_bytes}"
        )
    return batch, header
