"""Compares the segments listed in a checkpoint with the files on disk: finds changed and missing segments.

A closed segment never changes, and it is removed only after a checkpoint without it is durable. So a file whose
length differs was damaged and is scanned, and the offsets of a missing file are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storage.recovery.checkpoint import Checkpoint

# (first offset, offset after the last one)
OffsetRange = tuple[int, int]


def changed_segments(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> frozenset[int]:
    """The closed segments whose file length is not that in the checkpoint. ``sizes`` are the lengths of the files."""
    closed_below = min(checkpoint.scan_from, checkpoint.segment_base)
    return frozenset(
        one.base_offset
        for one in checkpoint.segments
        if one.base_offset < closed_below and sizes.get(one.base_offset, one.size_bytes) != one.size_bytes
    )


def missing_ranges(checkpoint: Checkpoint, sizes: Mapping[int, int], *, is_same_boot: bool) -> list[OffsetRange]:
    """The offset ranges of closed segments without a file, from the log start offset on. Adjacent ranges are merged.

    After a power cut, segments whose seal was pending are not reported: their names may never have been synced.
    """
    found: list[OffsetRange] = []
    for start, end in _without_file(checkpoint, sizes, is_same_boot):
        start = max(start, checkpoint.log_start_offset)
        if start >= end:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _without_file(checkpoint: Checkpoint, sizes: Mapping[int, int], is_same_boot: bool) -> Iterator[OffsetRange]:
    listed = [one.base_offset for one in checkpoint.segments]
    if listed and checkpoint.has_quarantine and listed[0] > checkpoint.clean_upto:
        # The first segments were lost earlier. The checkpoint no longer lists them, but their range is quarantined.
        yield checkpoint.log_start_offset, listed[0]
    closed_below = checkpoint.segment_base if is_same_boot or checkpoint.is_clean else checkpoint.scan_from
    for at, base in enumerate(listed):
        if base < closed_below and base not in sizes:
            yield base, listed[at + 1] if at + 1 < len(listed) else checkpoint.segment_base


def has_lost_last(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> bool:
    """Whether the active segment is listed and has no file.

    False if retention may have removed it: then a later segment begins at or below the log start offset.
    """
    base = checkpoint.segment_base
    if not checkpoint.segments or base in sizes:
        return False
    return not any(base < other <= checkpoint.log_start_offset for other in sizes)
