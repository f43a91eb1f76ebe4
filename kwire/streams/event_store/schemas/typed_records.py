"""A decoder of the event type and the value of each record of a batch. Schemas apply to these two parts of a record.

The event type must be the one that readers see, so the rule is the same as in `events/decoding.py`: the type is the
last non-empty `ce_type` header, or `message` if there is none.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kwire.streams.events.event import DEFAULT_TYPE, header_text
from storage.batch.record_batch import BatchHeader
from storage.batch.records import NULL, read_nullable, read_number, record_heads
from storage.errors import CorruptBatch

_TYPE_NAME = b"ce_type"
_TYPE_NAME_BYTES = 2 * len(_TYPE_NAME)  # the zigzag-encoded length
# Limits of the cache of event types by encoded headers: the number of entries, and the size of the headers of an entry.
# Consecutive records of a batch often have the same headers.
REMEMBERED_MAX = 100
REMEMBERED_BYTES_MAX = 1024

_new_tuple = tuple.__new__


class TypedRecord(NamedTuple):
    """The event type and value of a record. `number` is its index in the batch."""

    number: int
    type: str
    value: bytes | None


def typed_records(body: bytes, header: BatchHeader) -> Iterator[TypedRecord]:
    """Decode the decompressed records of a batch.

    Raises CorruptBatch if a record is malformed, or if the offset deltas are not consecutive.
    """
    number = 0
    remembered: dict[bytes, str] = {}
    try:
        for _, end, _, offset_delta, position in record_heads(body, 0, len(body)):
            if number == header.record_count:
                raise CorruptBatch("bytes follow the last record")
            if offset_delta != number << 1:
                raise CorruptBatch(f"the offset delta of record {number} is not {number}")
            key_bytes = body[position]
            position += 1
            if key_bytes >= 0x80:
                key_bytes, position = read_number(body, position - 1)
            if key_bytes != NULL:
                position += key_bytes >> 1
                if key_bytes & 1 or position > end:
                    raise CorruptBatch(f"the key of record {number} is longer than the record")
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
    """Return the event type in the encoded headers of a record. `headers` starts with the number of headers."""
    end = len(headers)
    count, position = headers[0], 1
    if count >= 0x80:
        count, position = read_number(headers, 0)
    # `count` is zigzag-encoded, so it is twice the number of headers. Each header takes at least two bytes.
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
        raise CorruptBatch("the length of a record does not match its content")
    return header_text(found) if found else DEFAULT_TYPE
