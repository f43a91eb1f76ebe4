"""The simplest compaction there is: a segment written anew out of some of its batches, ready to be swapped in."""

import os
from collections.abc import Sequence

from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.log.segment_replacement import NewSegment, write_new_aborted
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.segment import LogSegment, index_name, segment_name
from storage.segment.txn_index import AbortedEntry
from tests.support.batches import split_batches


def batches_of(segment: LogSegment) -> list[memoryview]:
    """Every batch of a segment, also those below the log start."""
    return split_batches(segment.read(segment.base_offset, 10**9, segment.next_offset, True).view)


def write_replacement(
    files: Files,
    directory: str,
    removed: Sequence[LogSegment],
    batches: Sequence[bytes],
    index_interval_bytes: int,
    aborted: Sequence[AbortedEntry] = (),
) -> NewSegment:
    """One segment in the place of ``removed``, with these batches, synced under its name with ``.new``."""
    base_offset = removed[0].base_offset
    index = SparseIndex(base_offset)
    position, max_timestamp = 0, NO_MAX_TIMESTAMP
    for batch in batches:
        header = parse_header(batch)
        if position - index.last_position >= index_interval_bytes:
            index.add(header.base_offset, position, max_timestamp)
        max_timestamp = max(max_timestamp, header.max_timestamp)
        position += len(batch)
    entries = index.encode() + index.encode_seal(position, max_timestamp)
    for name, content in ((segment_name(base_offset), b"".join(batches)), (index_name(base_offset), entries)):
        fd = files.create(os.path.join(directory, name + ".new"))
        files.write_all(fd, content, 0)
        files.fdatasync(fd)
        files.close(fd)
    first_timestamp = parse_header(batches[0]).max_timestamp
    if aborted:
        write_new_aborted(directory, base_offset, aborted, position, files)
    next_offset = removed[-1].next_offset
    return NewSegment(base_offset, next_offset, position, max_timestamp, first_timestamp, index, tuple(aborted))
