"""Rebuilds the state of a log from its checkpoint and the batches that a scan finds after it.

The state is the leader epochs, the producer states, and the open and aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from storage.batch.format import NO_TIMESTAMP
from storage.batch.markers import read_marker
from storage.batch.record_batch import BatchHeader
from storage.disk.files import Files
from storage.log.leader_epochs import LeaderEpochs
from storage.log.producers import ProducerStates
from storage.recovery.checkpoint import Checkpoint
from storage.segment.reading import txn_index_name
from storage.segment.segment import LogSegment
from storage.segment.txn_index import AbortedEntry, decode_entries, decode_fitting, find_aborted


class Replay:
    """Rebuilds the state of a log, starting with the checkpoint. Call it with each batch from ``start_offset`` on."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self.start_offset = checkpoint.offset if checkpoint else 0
        self.epochs = LeaderEpochs(checkpoint.epochs if checkpoint else ())
        self.producers = ProducerStates.decode(checkpoint.producers if checkpoint else b"")
        # Aborted transactions from the checkpoint (of segments that were not sealed then), and those found since.
        self.known_aborted = decode_entries(checkpoint.aborted if checkpoint else b"")
        self.found_aborted: list[AbortedEntry] = []
        # (epoch, start offset) of a new epoch of which only one batch was seen.
        self._new_epoch: tuple[int, int] | None = None

    def __call__(self, header: BatchHeader, batch: memoryview | None) -> None:
        """Replay the next batch. ``batch`` has the bytes of a control batch and is None for data batches."""
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
        """Add a new epoch once the next batch confirms it: the CRC does not cover the epoch. Epochs never decrease."""
        if epoch < 0:
            return
        if self._new_epoch is not None and epoch >= self._new_epoch[0]:
            self.epochs.assign(*self._new_epoch)
        self._new_epoch = (epoch, offset) if epoch > self.epochs.latest else None

    def finish(self) -> None:
        """End the replay after the last batch."""
        if self._new_epoch is not None:
            self.epochs.assign(*self._new_epoch)


def assign_aborted(
    segments: Sequence[LogSegment],
    replay: Replay,
    checkpoint: Checkpoint | None,
    names: AbstractSet[str],
    files: Files,
) -> None:
    """Set the aborted transactions of each segment. ``names`` are the names of the files in the folder.

    If a segment was open, or its seal was pending, when the checkpoint was written, its aborted transactions are in the
    checkpoint. Otherwise they are in the transaction index file of the segment. If that file is not valid, the batches
    are scanned.
    """
    listed = {one.base_offset: one for one in checkpoint.segments} if checkpoint is not None else {}
    for at, segment in enumerate(segments):
        is_named = txn_index_name(segment.base_offset) in names
        if segment.base_offset in listed and listed[segment.base_offset].has_aborted:
            is_named = True  # if the file is missing, the batches are scanned
        if segment.is_aborted_on_file and is_named:
            segment.aborted = None  # loaded on first use
            continue
        known: list[AbortedEntry] | None = _within(segment, replay.known_aborted)
        if not known and (is_named or _has_lost_seal(segment, checkpoint)):
            known = _read_aborted(segment, checkpoint, files)
            if known is None:
                segment.adopt_aborted(find_aborted(segments[: at + 1]))
                if is_named and not segment.has_aborted:
                    with suppress(OSError):  # written by an earlier seal of this segment
                        files.unlink(segment.txn_index_path)
                continue
        before = [entry for entry in known or () if entry.last_offset < min(replay.start_offset, segment.next_offset)]
        segment.adopt_aborted([*before, *_within(segment, replay.found_aborted)])


def _within(segment: LogSegment, entries: list[AbortedEntry]) -> list[AbortedEntry]:
    return [entry for entry in entries if segment.base_offset <= entry.last_offset < segment.next_offset]


def _has_lost_seal(segment: LogSegment, checkpoint: Checkpoint | None) -> bool:
    """Whether the segment was sealed when the checkpoint was written, but had to be scanned.

    Then its aborted transactions are not in the checkpoint, and at least one of its own files is missing or damaged.
    """
    if checkpoint is None or not segment.is_seal_pending:
        return False
    return segment.base_offset < min(checkpoint.scan_from, checkpoint.segment_base)


def _read_aborted(segment: LogSegment, checkpoint: Checkpoint | None, files: Files) -> list[AbortedEntry] | None:
    """The entries of the transaction index file; None if it fits neither the current nor the checkpointed length."""
    sizes = [segment.size_bytes]
    if checkpoint is not None and checkpoint.segment_base == segment.base_offset:
        sizes.append(checkpoint.position)
    if checkpoint is not None:
        # The file of a segment that was truncated since then may still have entries of lost markers.
        sizes.extend(one.size_bytes for one in checkpoint.segments if one.base_offset == segment.base_offset)
    return decode_fitting(files.read_file(segment.txn_index_path), *sizes)
