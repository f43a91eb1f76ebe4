"""Reads the batches of a segment file with `RecordBatchSpec`, the executable specification of the batch format.

The specification is slow, but independent of the server's code. Only three functions of `storage` are used:
decompression, the index lookup of the start position, and the search for the next batch after damaged bytes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from construct import ConstructError

from kwire.wire.record_batch_spec import HEADER_BYTES, LENGTH_OVERHEAD, ControlKeySpec, RecordBatchSpec, records_spec
from kwire.wire.spec import BatchHeaderSpec, to_plain
from storage.batch.compression import decompress
from storage.errors import CorruptBatch
from storage.recovery.verify import SegmentJob, survey_segment
from storage.segment.index import SparseIndex

# The maximum size of a batch, and also of its decompressed payload.
BATCH_BYTES_MAX = 512 * 1024 * 1024
_ZERO_BYTES = 1024 * 1024


class Region(NamedTuple):
    """A part of a segment file or of a records field: a valid batch, or other bytes, described by `problem`."""

    position: int
    size_bytes: int
    batch: Any
    problem: str = ""
    is_damage: bool = False


def batches_of(path: Path, first_offset: int) -> Iterator[Region]:
    """Yield the file's regions, beginning at the batch that contains `first_offset` or some batches before it."""
    size = path.stat().st_size
    job = SegmentJob(str(path.parent), int(path.name.split(".")[0]), path.name, "", size)
    with path.open("rb") as file:
        position, offset = _start(path, file, job.base_offset, first_offset)
        while position < size:
            batch = _batch_at(file, position, size)
            if batch is not None and batch.is_intact:
                size_bytes = batch.header.batch_length + LENGTH_OVERHEAD
                yield Region(position, size_bytes, batch)
                position += size_bytes
                offset = max(offset, batch.header.base_offset + batch.header.last_offset_delta + 1)
                continue
            if _is_zero(file, position, size):
                yield Region(position, size - position, None, "reserved space, all zeros")
                return
            # The length field of a damaged batch may be wrong, so the next batch is searched for.
            ranges = survey_segment(job, position, offset).ranges
            end = next((one.end_position for one in ranges if one.position == position and one.size_bytes), size)
            problem = "not a batch" if batch is None else "the CRC does not match"
            yield Region(position, end - position, batch, problem, is_damage=True)
            position = end


def _start(path: Path, file: BinaryIO, base_offset: int, first_offset: int) -> tuple[int, int]:
    """Return the position and offset of an indexed batch at or before `first_offset`, or of the start of the file."""
    start = (0, base_offset)
    index_path = path.with_name(path.name.replace(".log", ".index"))
    if first_offset <= base_offset or not index_path.exists():
        return start
    position, offset = SparseIndex.decode(base_offset, index_path.read_bytes()).find_offset(first_offset)
    batch = _batch_at(file, position, path.stat().st_size)
    is_there = batch is not None and batch.is_intact and batch.header.base_offset == offset
    return (position, offset) if is_there else start


def _batch_at(file: BinaryIO, position: int, size: int) -> Any:
    """Return the batch at this position, also if its CRC does not match. Return None if the bytes cannot be a batch."""
    file.seek(position)
    head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    length = BatchHeaderSpec.parse(head).batch_length + LENGTH_OVERHEAD
    if not HEADER_BYTES <= length <= min(size - position, BATCH_BYTES_MAX):
        return None
    try:
        return RecordBatchSpec.parse(head + file.read(length - HEADER_BYTES))
    except ConstructError:
        return None


def _is_zero(file: BinaryIO, position: int, size: int) -> bool:
    file.seek(position)
    while position < size:
        piece = file.read(_ZERO_BYTES)
        if not piece:
            return True
        if piece.strip(b"\0"):
            return False
        position += len(piece)
    return True


def decoded_records(batch: Any, *, is_group_topic: bool) -> list[dict[str, Any]]:
    """Return the records with absolute offsets and timestamps. Raises ConstructError or StorageError."""
    header, body = batch.header, batch.payload
    if header.compression:
        body = decompress(header.compression, body, BATCH_BYTES_MAX)
    # A record has at least 7 bytes. This check rejects a wrong record count before memory is allocated for the records.
    if not 0 <= header.record_count * 7 <= len(body):
        raise CorruptBatch(f"{header.record_count} records cannot fit in {len(body)} bytes")
    return [_record(header, record, is_group_topic) for record in records_spec(header.record_count).parse(body)]


def _record(header: Any, record: Any, is_group_topic: bool) -> dict[str, Any]:
    timestamp = header.max_timestamp if header.timestamp_type else header.base_timestamp + record.timestamp_delta
    plain: dict[str, Any] = {
        "offset": header.base_offset + record.offset_delta,
        "timestamp": timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [(one.key, one.value) for one in record.headers],
    }
    if header.is_control and record.key is not None:
        plain["control_type"] = ControlKeySpec.parse(record.key).type
    elif is_group_topic and record.key is not None:
        decoded = _group_record(record.key, record.value)
        if decoded is not None:
            plain["decoded"] = decoded
    return plain


def _group_record(key: bytes, value: bytes | None) -> dict[str, Any] | None:
    from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
    from kwire.coordinator.group.records import GroupMetadataRecord, decode_record
    from kwire.wire.errors import WireError

    try:
        record = decode_record(key, value)
    except WireError:
        return None
    if record is None:
        return None
    content = None if record.value is None else to_plain(record.value)
    if isinstance(record, GroupMetadataRecord):
        return {"type": "group", "group": record.group_id, "value": content}
    if isinstance(record, ConsumerGroupRecord):
        return {"type": record.kind_name, "group": record.group_id, "subject": record.subject, "value": content}
    return {"type": "offset", **to_plain(record.key), "value": content}
