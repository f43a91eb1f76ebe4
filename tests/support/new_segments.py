"""Replacements for segments, written the way compaction writes them, without its rules."""

from collections.abc import Callable, Sequence

from storage.batch.record_batch import BatchHeader, parse_header
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.segment_replacement import NewSegment, new_index_path, new_log_path
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.segment import LogSegment

INDEX_INTERVAL_BYTES = 100


def unchanged(_: BatchHeader, batch: memoryview) -> bytes:
    return bytes(batch)


def write_new_segment(
    log: Log,
    files: Files,
    segments: Sequence[LogSegment],
    is_kept: Callable[[BatchHeader], bool],
    rewrite: Callable[[BatchHeader, memoryview], bytes] = unchanged,
) -> NewSegment:
    """One segment with the batches of ``segments`` that are kept, as synced ``.new`` files."""
    base = segments[0].base_offset
    index, data, max_timestamp, next_offset = SparseIndex(base), b"", NO_MAX_TIMESTAMP, base
    for segment in segments:
        for start, end in segment.batches():
            batch = segment.view(start, end)
            header = parse_header(batch)
            if not is_kept(header):
                continue
            if len(data) - index.last_position >= INDEX_INTERVAL_BYTES:
                index.add(header.base_offset, len(data), max_timestamp)
            kept = rewrite(header, batch)
            max_timestamp = max(max_timestamp, parse_header(kept).max_timestamp)
            data += kept
            next_offset = header.last_offset + 1
    _write(files, new_log_path(log.directory, base), data)
    _write(files, new_index_path(log.directory, base), index.encode() + index.encode_seal(len(data), max_timestamp))
    first_timestamp = parse_header(data).max_timestamp if data else NO_MAX_TIMESTAMP
    return NewSegment(base, next_offset, len(data), max_timestamp, first_timestamp, index)


def _write(files: Files, path: str, data: bytes) -> None:
    fd = files.create(path)
    try:
        files.write_all(fd, data, 0)
        files.fsync(fd)
    finally:
        files.close(fd)
