"""The number of an event: the last header of its record, with a fixed length so that it is read and written in place.

In an event topic the number is the event's version. In the journal it is the global position of a commit's first event.
"""

from collections.abc import Sequence
from typing import Final

from kwire.streams.events.event import NUMBER_HEADER
from storage.batch.builder import header_bytes
from storage.batch.format import CONTROL_BIT, HEADER_BYTES
from storage.batch.record_batch import BatchHeader, decompress_records
from storage.batch.records import read_number
from storage.errors import StorageError

# The largest offset has 19 digits.
DIGITS: Final = 19
# Decompressed bytes of a batch whose topic compresses what it gets. The bridge itself does not compress.
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
_LENGTH_BYTES_MAX: Final = 5

# The encoded header before the number is known.
NUMBER_PLACEHOLDER: Final = header_bytes(NUMBER_HEADER.encode(), b"0" * DIGITS)
_FRONT: Final = NUMBER_PLACEHOLDER[:-DIGITS]


def numbered(bodies: Sequence[bytes], first: int) -> list[bytes]:
    """Return encoded records that end with the placeholder, with consecutive numbers from `first` on."""
    return [body[:-DIGITS] + b"%019d" % number for number, body in enumerate(bodies, first)]


def first_number(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the number of the first record of a batch; None for a marker and for records of other writers."""
    if header.attributes & CONTROL_BIT or header.record_count != header.last_offset_delta + 1:
        return None
    try:
        if header.compression:
            return _number_of(decompress_records(batch, header, DECOMPRESSED_BYTES_MAX))
        return _number_of(batch[HEADER_BYTES:])
    except (StorageError, IndexError):
        # It is not a batch of this process. A damaged one is reported by its reader.
        return None


def _number_of(records: bytes | memoryview) -> int | None:
    doubled, position = read_number(bytes(records[:_LENGTH_BYTES_MAX]), 0)
    end = position + (doubled >> 1)
    found = bytes(records[end - len(NUMBER_PLACEHOLDER) : end])
    digits = found[len(_FRONT) :]
    if len(found) != len(NUMBER_PLACEHOLDER) or not found.startswith(_FRONT) or not digits.isdigit():
        return None
    return int(digits)
