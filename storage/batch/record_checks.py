"""Checks the records of a client's batch against the limits of the topic, in one pass without record objects.

The error names the records that violate a limit, with the messages and in the order of Kafka's LogValidator. For that,
a batch that is refused is read a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.batch.format import MIN_RECORD_BYTES, NO_TIMESTAMP
from storage.batch.record_batch import BatchHeader
from storage.batch.records import NULL, read_number, record_heads
from storage.errors import PROBLEMS_NAMED_MAX, CorruptBatch, InvalidBatch, InvalidTimestamp, RecordProblem

# The message of the whole batch shows at most this many problems.
_PROBLEMS_SHOWN_MAX: Final = 3
# The smallest valid length field of a record, in zigzag form (doubled). The length does not include its own bytes.
_LENGTH_MIN: Final = 2 * (MIN_RECORD_BYTES - 1)

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


class RecordLimits(NamedTuple):
    """The limits for the records of a batch. Both times are inclusive. A record without a timestamp is not checked."""

    needs_keys: bool = False
    earliest_ms: int = _LONG_MIN
    latest_ms: int = _LONG_MAX


def check_records(body: bytes, header: BatchHeader, limits: RecordLimits) -> int:
    """Check the uncompressed records of a batch. Returns their largest timestamp.

    Raises :class:`CorruptBatch` if the records do not match the header. Raises :class:`InvalidTimestamp` if the
    timestamp of at least one record is outside the limits, and :class:`InvalidBatch` if only keys are missing. The
    last two errors name the invalid records.
    """
    needs_keys = limits.needs_keys
    size, position = len(body), 0
    largest, smallest = _LONG_MIN, _LONG_MAX
    is_key_missing = False
    try:
        for _ in range(header.record_count):
            # Numbers are read in place: most take one or two bytes, and a batch may have very many records.
            length = body[position]
            position += 1
            if length >= 0x80:
                more = body[position]
                if more < 0x80:
                    length = more << 7 | length & 0x7F
                    position += 1
                else:
                    length, position = read_number(body, position - 1)
            end = position + (length >> 1)
            if length & 1 or length < _LENGTH_MIN or end > size:
                raise CorruptBatch("a record is longer than its batch or shorter than a record")
            delta = body[position + 1]  # after the record's attributes
            position += 2
            if delta >= 0x80:
                more = body[position]
                if more < 0x80:
                    delta = more << 7 | delta & 0x7F
                    position += 1
                else:
                    delta, position = read_number(body, position - 1)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > largest:
                largest = delta
            if delta < smallest:
                smallest = delta
            if needs_keys:
                # The offset delta is not needed.
                if body[position] < 0x80:
                    position += 1
                elif body[position + 1] < 0x80:
                    position += 2
                elif body[position + 2] < 0x80:
                    position += 3
                else:
                    _, position = read_number(body, position)
                key = body[position]
                if key == NULL:
                    is_key_missing = True
                else:
                    if key >= 0x80:
                        key, position = read_number(body, position)
                    if key & 1 or position + (key >> 1) >= end:
                        raise CorruptBatch("a key is longer than its record or has a negative length")
            position = end
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != size:
        raise CorruptBatch("bytes follow the last record")
    earliest, latest = header.base_timestamp + smallest, header.base_timestamp + largest
    if is_key_missing or earliest < limits.earliest_ms or latest > limits.latest_ms:
        _refuse_records(body, header, limits)
    if latest > _LONG_MAX or earliest < _LONG_MIN:
        raise InvalidBatch("a record timestamp does not fit in 64 bits")
    return latest


def _refuse_records(body: bytes, header: BatchHeader, limits: RecordLimits) -> None:
    """Raise for the records that violate a limit. Return if only records without a timestamp are outside the limits."""
    named: list[RecordProblem] = []
    count = 0
    is_time_wrong = False
    for problem, is_of_time in _problems(body, header, limits):
        count += 1
        is_time_wrong |= is_of_time
        if len(named) < PROBLEMS_NAMED_MAX:
            named.append(problem)
    if is_time_wrong:
        raise InvalidTimestamp("One or more records have been rejected due to invalid timestamp", named)
    if count:
        shown = ", ".join(
            f"RecordError(batchIndex={number}, message='{message}')" for number, message in named[:_PROBLEMS_SHOWN_MAX]
        )
        raise InvalidBatch(
            f"One or more records have been rejected due to {count} record errors in total, and only showing the "
            f"first three errors at most: [{shown}]",
            named,
        )


def _problems(body: bytes, header: BatchHeader, limits: RecordLimits) -> Iterator[tuple[RecordProblem, bool]]:
    """The first problem of each invalid record, and whether it is about the timestamp. The records are well-formed."""
    for number, (_, _, delta, _, position) in enumerate(record_heads(body, 0, len(body))):
        timestamp_ms = header.base_timestamp + ((delta >> 1) ^ -(delta & 1))
        if limits.needs_keys and body[position] == NULL:
            yield RecordProblem(number, "Compacted topic cannot accept message without key"), False
        elif not limits.earliest_ms <= timestamp_ms <= limits.latest_ms and timestamp_ms != NO_TIMESTAMP:
            yield (
                RecordProblem(
                    number,
                    f"Timestamp {timestamp_ms} of message with offset {number} is out of range. "
                    f"The timestamp should be within [{limits.earliest_ms}, {limits.latest_ms}]",
                ),
                True,
            )
