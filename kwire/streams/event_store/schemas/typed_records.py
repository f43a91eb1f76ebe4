"""The event type and the value of each record of a batch, and nothing else of it: what schemas judge.

The type is what readers will see, so it is found as `events/decoding.py` finds it: the last `ce_type` header that says
something, or else `message`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kwire.broker.events.event import DEFAULT_TYPE, header_text
from storage.batch import BatchHeader
from storage.errors import CorruptBatch
from storage.records import NULL, read_nullable, read_number, record_heads

_TYPE_NAME = b"ce_type"
_TYPE_NAME_BYTES = 2 * len(_TYPE_NAME)  # as it is written
# Headers that were seen in this batch: those of one type are often the same in record after record.
REMEMBERED_MAX = 100
REMEMBERED_BYTES_MAX = 1024

_new_tuple = tuple.__new__


class TypedRecord(NamedTuple):
    """`number` is its place in the batch. `value` is None if it has none."""

    number: int
    type: str
    value: bytes | None


def typed_records(body: bytes, header: BatchHeader) -> Iterator[TypedRecord]:
    """Of the unfolded records of a batch; raises CorruptBatch, also for records that are not numbered in order."""
    number = 0
    remembered: dict[bytes, str] = {}
    try:
        for _, end, _, offset_delta, position in record_heads(body, 0, len(body)):
            if number == header.record_count:
                raise CorruptBatch("bytes follow the last record")
            if offset_delta != number << 1:
                raise CorruptBatch(f"record {number} has another number")
            key_bytes = body[position]
            position += 1
            if key_bytes >= 0x80:
                key_bytes, position = read_number(body, position - 1)
            if key_bytes != NULL:
                position += key_bytes >> 1
                if key_bytes & 1 or position > end:
                    raise CorruptBatch(f"the key of record {number} is longer than it")
            value, position = read_nullable(body, position, end)
            headers = body[position:end]
            event_type = remembered.get(headers)
            if event_type is None:
                event_type = _type_in(headers)
                if len(remembered) < REMEMBERED_MAX and len(headers) <= REMEMBERED_BYTES_MAX:
                    remembered[headers] = event_type
            yield _new_tuple(TypedRecord, (number, event_type, value))
            number += 1
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if number != header.record_count:
        raise CorruptBatch(f"{header.record_count - number} records are missing")


def _type_in(headers: bytes) -> str:
    """From the headers of a record, their count in front."""
    end = len(headers)
    count, position = headers[0], 1
    if count >= 0x80:
        count, position = read_number(headers, 0)
    # Two bytes is the least a header takes, so a lying count fails before anything is done for it.
    if count & 1 or count > end - position:
        raise CorruptBatch("the headers cannot fit in their record")
    found = b""
    for _ in range(count >> 1):
        name_bytes = headers[position]
        position += 1
        if name_bytes >= 0x80:
            name_bytes, position = read_number(headers, position - 1)
        name_at = position
        position += name_bytes >> 1
        value_bytes = headers[position]
        position += 1
        if value_bytes >= 0x80:
            value_bytes, position = read_number(headers, position - 1)
        if value_bytes != NULL:
            position += value_bytes >> 1
            if name_bytes == _TYPE_NAME_BYTES and value_bytes and headers.startswith(_TYPE_NAME, name_at):
                found = headers[position - (value_bytes >> 1) : position]
        # The lowest bit is the sign of a length.
        if position > end or name_bytes & 1 or (value_bytes & 1 and value_bytes != NULL):
            raise CorruptBatch("a header is longer than its record")
    if position != end:
        raise CorruptBatch("a record is not as long as it says")
    return header_text(found) if found else DEFAULT_TYPE
