"""What a log knows beside its batches, brought up to date by the batches that a walk finds behind the checkpoint.

That is: which leader wrote what, what producers wrote last, and which transactions are open and were aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from storage.batch import BatchHeader
from storage.checkpoint import Checkpoint
from storage.epochs import LeaderEpochs
from storage.files import Files
from storage.format import NO_TIMESTAMP
from storage.markers import read_marker
from storage.producers import ProducerStates
from storage.segment import LogSegment
from storage.segment_reading import txn_index_name
from storage.txn_index import AbortedEntry, decode_entries, decode_fitting, find_aborted


class Replay:
    """Called with each batch from ``start_offset`` on, in order; what is before is in the checkpoint."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self.start_offset = checkpoint.offset if checkpoint else 0
        self.epochs = LeaderEpochs(checkpoint.epochs if checkpoint else ())
        self.producers = ProducerStates.decode(checkpoint.producers if checkpoint else b"")
        # Aborted transactions of segments that were open or being closed then, and those found since.
        self.known_aborted = decode_entries(checkpoint.aborted if checkpoint else b"")
        self.found_aborted: list[AbortedEntry] = []
        # An epoch with its first offset, of which only one batch was seen.
        self._new_epoch: tuple[int, int] | None = None

    def __call__(self, header: BatchHeader, batch: memoryview | None) -> None:
        """``batch`` is given for control batches."""
        epoch = header.partition_leader_epoch
        if epoch != self.epochs.latest or self._new_epoch is not None:
            self._replay_epoch(epoch, header.base_offset)
        if header.producer_id < 0:
            return
        append_time_ms = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
        facts = header.base_offset, append_time_ms, header.max_timestamp
        marker = read_marker(batch) if batch is not None else None
        if marker is None:
            self.producers.record(header, *facts)
        elif (entry := self.producers.record_marker(header, marker, *facts)) is not None:
            self.found_aborted.append(entry)

    def _replay_epoch(self, epoch: int, offset: int) -> None:
        """Epochs only rise, and they are not under the CRC: a new one counts when the next batch does not fall back."""
        if epoch < 0:
            return
        if self._new_epoch is not None and epoch >= self._new_epoch[0]:
            self.epochs.assign(*self._new_epoch)
        self._new_epoch = (epoch, offset) if epoch > self.epochs.latest else None

    def finish(self) -> None:
        """That was the last one."""
        if self._new_epoch is not None:
            self.epochs.assign(*self._new_epoch)


def share_aborted(
    segments: Sequence[LogSegment],
    replay: Replay,
    checkpoint: Checkpoint | None,
    names: AbstractSet[str],
    files: Files,
) -> None:
    """Give each segment the aborted transactions whose markers lie in it; ``names`` are those of the files there.

    Of a segment that was open, or in work, when the checkpoint was made, they are in the checkpoint. Else they are in a
    file of their own, and where that does not fit the batches are asked.
    """
    listed = {one.base_offset: one for one in checkpoint.segments} if checkpoint is not None else {}
    for at, segment in enumerate(segments):
        is_named = txn_index_name(segment.base_offset) in names
        if segment.base_offset in listed and listed[segment.base_offset].has_aborted:
            is_named = True  # and if it is gone, it is missed
        if segment.is_aborted_on_file and is_named:
            segment.aborted = None  # read when somebody asks
            continue
        known: list[AbortedEntry] | None = _within(segment, replay.known_aborted)
        if not known and (is_named or _has_lost_seal(segment, checkpoint)):
            known = _read_aborted(segment, checkpoint, files)
            if known is None:
                segment.adopt_aborted(find_aborted(segments[: at + 1]))
                if is_named and not segment.has_aborted:
                    with suppress(OSError):  # of an earlier end of this segment
                        files.unlink(segment.txn_index_path)
                continue
        before = [entry for entry in known or () if entry.last_offset < min(replay.start_offset, segment.next_offset)]
        segment.adopt_aborted([*before, *_within(segment, replay.found_aborted)])


def _within(segment: LogSegment, entries: list[AbortedEntry]) -> list[AbortedEntry]:
    return [entry for entry in entries if segment.base_offset <= entry.last_offset < segment.next_offset]


def _has_lost_seal(segment: LogSegment, checkpoint: Checkpoint | None) -> bool:
    """Whether it was closed for good when the checkpoint was made, and had to be walked all the same.

    Then the checkpoint left its aborted transactions to its own files, and of those one at least is gone.
    """
    if checkpoint is None or not segment.is_seal_pending:
        return False
    return segment.base_offset < min(checkpoint.walk_from, checkpoint.segment_base)


def _read_aborted(segment: LogSegment, checkpoint: Checkpoint | None, files: Files) -> list[AbortedEntry] | None:
    """What is on file, if it was written when the segment was as it is now, or as long as the checkpoint says."""
    sizes = [segment.size_bytes]
    if checkpoint is not None and checkpoint.segment_base == segment.base_offset:
        sizes.append(checkpoint.position)
    if checkpoint is not None:
        # A segment that was cut short since then may have lost markers of which its file still tells.
        sizes.extend(one.size_bytes for one in checkpoint.segments if one.base_offset == segment.base_offset)
    return decode_fitting(files.read_file(segment.txn_index_path), *sizes)
