"""Compares the segments that a checkpoint lists with the files that are there: which have changed, which are missing.

A closed segment never changes, and it goes only after a checkpoint without it is durable. So a file of another length
was damaged and is looked at, and a file that is missing took its offsets with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storage.checkpoint import Checkpoint

# (first offset, offset after the last one)
OffsetRange = tuple[int, int]


def changed_segments(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> frozenset[int]:
    """The closed segments whose files do not have the length they were sealed with; ``sizes`` has that of each file."""
    closed_below = min(checkpoint.walk_from, checkpoint.segment_base)
    return frozenset(
        one.base_offset
        for one in checkpoint.segments
        if one.base_offset < closed_below and sizes.get(one.base_offset, one.size_bytes) != one.size_bytes
    )


def missing_ranges(checkpoint: Checkpoint, sizes: Mapping[int, int], *, is_same_boot: bool) -> list[OffsetRange]:
    """The offsets of closed segments that have no file, neighbours joined, from the log start on.

    After a power cut a segment whose seal was in work may be gone with its name: that was never synced.
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
        # The beginning was lost before: no segment was listed there any more, only the range.
        yield checkpoint.log_start_offset, listed[0]
    closed_below = checkpoint.segment_base if is_same_boot or checkpoint.is_clean else checkpoint.walk_from
    for at, base in enumerate(listed):
        if base < closed_below and base not in sizes:
            yield base, listed[at + 1] if at + 1 < len(listed) else checkpoint.segment_base


def has_lost_last(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> bool:
    """Whether the segment in use is on the list and has no file.

    Retention may have removed it since: then another segment follows that begins at or below the log start.
    """
    base = checkpoint.segment_base
    if not checkpoint.segments or base in sizes:
        return False
    return not any(base < other <= checkpoint.log_start_offset for other in sizes)
