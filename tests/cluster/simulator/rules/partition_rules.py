"""Rules about Kafka partitions: offsets and sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.cluster.core.entries import INDEX_MAX
from storage.batch.record_batch import parse_header
from tests.cluster.simulator.rules import check
from tests.cluster.simulator.stream_kinds import PRODUCERS

if TYPE_CHECKING:
    from tests.cluster.simulator.store_node import StoreNode


class PartitionRules:
    """What one reader of a partition has got so far."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._next_offset = 0
        self._next_sequences: dict[int, int] = {}
        # Whether batches may have been trimmed before the next one, and before the next one of these producers.
        self._has_gap = False
        self._producers_with_gap: set[int] = set()

    def begin_gap(self) -> None:
        """The next batches may be later ones: those in between were trimmed."""
        self._has_gap = True
        self._producers_with_gap = set(range(PRODUCERS))

    def check_batch(self, batch: bytes | None) -> None:
        """I22: offsets have no gap. I15 and I25: each sequence of a producer is there once, and in order."""
        check(batch is not None, "I15", f"{self._reader} got a hole")
        assert batch is not None
        header = parse_header(batch)
        check(
            header.base_offset == self._next_offset or (self._has_gap and header.base_offset > self._next_offset),
            "I22",
            f"{self._reader} got offset {header.base_offset} after {self._next_offset - 1}",
        )
        expected = self._next_sequences.get(header.producer_id, 0)
        is_later = header.producer_id in self._producers_with_gap and header.base_sequence > expected
        check(
            header.base_sequence == expected or is_later,
            "I25",
            f"{self._reader} got sequence {header.base_sequence} of producer {header.producer_id}, not {expected}",
        )
        self._next_offset = header.last_offset + 1
        self._next_sequences[header.producer_id] = header.base_sequence + header.record_count
        self._has_gap = False
        self._producers_with_gap.discard(header.producer_id)


def check_i22_log(store: StoreNode, stream: str) -> None:
    """The replicas of a store continue each other in its log. One that was dropped or trimmed leaves a gap."""
    assert store.files is not None
    last_number, expected, is_next = 0, 0, True
    for segment, state in sorted(store.files.states().items()):
        if segment.stream != stream:
            continue
        is_next = segment.number == last_number + 1 and state.first == 1 and (is_next or expected > 0)
        last_number = segment.number
        for entry in store.files.read(segment, 1, INDEX_MAX, INDEX_MAX):
            if not entry.payload:
                continue
            header = parse_header(entry.payload)
            check(
                header.base_offset == expected or (not is_next and header.base_offset > expected),
                "I22",
                f"{store.name}: offset {header.base_offset} of {segment} follows {expected - 1}",
            )
            check(
                header.partition_leader_epoch == entry.birth_epoch,
                "I8",
                f"{store.name}: {segment} index {entry.index} has leader epoch {header.partition_leader_epoch}",
            )
            is_next, expected = True, header.last_offset + 1
