"""Reads topics from one position to another, alone or as a member of a group."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.fetcher import Batch, Fetcher, Skipped
from kwire.cli.kafka.group_member import GroupMember
from kwire.cli.kafka.positions import Bounds, Position, offsets_at

POLL_SECONDS = 1.0
COMMIT_SECONDS = 5.0


class ConsumerSettings(NamedTuple):
    """What to read. Without `until` and `record_max`, reading goes on until the program ends.

    In a group, `start` is where partitions without a committed offset begin.
    """

    start: Position
    until: Position | None = None
    record_max: int | None = None
    partitions: Sequence[int] | None = None
    is_committed: bool = False
    group_id: str | None = None


class Consumer:
    """Reads topics. The topics must be loaded in the cluster's metadata."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._topics = list(dict.fromkeys(topics))
        self._settings = settings
        self._fetcher = Fetcher(cluster, is_committed=settings.is_committed)
        self._member = None if settings.group_id is None else GroupMember(cluster, settings.group_id, self._topics)
        self._handled: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self.bounds = self._bounds()
        self._stops = self._stops_at_start()

    def rounds(self, starts: Mapping[TopicPartition, int] | None = None) -> Generator[list[Batch]]:
        """Yield the batches that have arrived, again and again. Asking for more says that they are handled.

        `starts` replaces the start of the settings. A group's offsets of handled records are committed from time to
        time and at the end, also after an exception.
        """
        try:
            self._assign(starts)
            yield from self._rounds()
        finally:
            self._fetcher.close()
            if self._member is not None:
                self._leave()

    def taken_skips(self) -> list[Skipped]:
        """Return the records that retention has deleted since the last call, before they could be read."""
        skipped, self._fetcher.skipped = self._fetcher.skipped, []
        return skipped

    @property
    def record_count(self) -> int:
        """The number of offsets between start and until, for a progress bar: the records, if none were compacted."""
        starts = offsets_at(self._cluster, self.bounds, self._settings.start)
        stops = self._stops or self.bounds.end
        return sum(max(0, stops[one] - start) for one, start in starts.items())

    def _rounds(self) -> Iterator[list[Batch]]:
        left = self._settings.record_max
        commit_due = time.monotonic() + COMMIT_SECONDS
        while left != 0 and not (self._stops is not None and self._fetcher.is_done):
            if self._member is not None and self._member.must_rejoin:
                self._commit()
                self._assign(None)
            batches = list(self._fetcher.poll(POLL_SECONDS))
            if left is not None:
                batches, left = _limited(batches, left)
            if batches:
                yield batches
            if left == 0:
                self._handled.update({batch.partition: batch.next_offset for batch in batches})
            else:
                self._handled.update(self._fetcher.positions())
            if self._member is not None and time.monotonic() >= commit_due:
                self._commit()
                commit_due = time.monotonic() + COMMIT_SECONDS
            self._set_late_stops()

    # Where to begin and to stop

    def _bounds(self) -> Bounds:
        partitions: list[TopicPartition] = []
        for topic in self._topics:
            known = self._cluster.partitions(topic)
            for partition in self._settings.partitions or ():
                self._cluster.check_partition(topic, partition)
            partitions += [TopicPartition(topic, one) for one in self._settings.partitions or known]
        return Bounds.of(self._cluster, partitions, is_committed=self._settings.is_committed)

    def _assign(self, starts: Mapping[TopicPartition, int] | None) -> None:
        if starts is None:
            starts = self._starts()
        # Partitions that are not read are committed too: without a committed offset they have no lag.
        self._handled = dict(starts)
        stops = None if self._stops is None else {one: self._stops[one] for one in starts}
        # Records may have arrived after the ends were asked for, which is no harm.
        self._fetcher.assign(starts, stops, self.bounds.end)

    def _starts(self) -> dict[TopicPartition, int]:
        if self._member is None:
            return self._offsets_of(self._settings.start)
        assigned = self._member.join()
        if any(one not in self.bounds.end for one in assigned):
            # Partitions were added since.
            self._cluster.load_topics(self._topics)
        self.bounds = self._bounds()
        if self._stops is not None:
            self._stops |= {one: end for one, end in self.bounds.end.items() if one not in self._stops}
        self._committed = self._member.committed(assigned)
        # An offset after the end is of an earlier topic of this name, or of records that were lost.
        usable = {one: offset for one, offset in self._committed.items() if offset <= self.bounds.end[one]}
        if all(one in usable for one in assigned):
            return usable
        fallback = self._offsets_of(self._settings.start)
        return {one: usable.get(one, fallback[one]) for one in assigned}

    def _offsets_of(self, position: Position) -> dict[TopicPartition, int]:
        """Return the offsets of a position. An offset may be after the end: its record may come later."""
        if position.kind == "offset":
            return {one: max(position.amount, first) for one, first in self.bounds.first.items()}
        return offsets_at(self._cluster, self.bounds, position)

    def _stops_at_start(self) -> dict[TopicPartition, int] | None:
        until = self._settings.until
        if until is None or (until.kind == "time" and until.amount > _now_ms()):
            return None
        return self._offsets_of(until)

    def _set_late_stops(self) -> None:
        """Stop at a time that has come."""
        until = self._settings.until
        if until is None or self._stops is not None or until.amount > _now_ms():
            return
        self.bounds = self._bounds()
        self._stops = self._offsets_of(until)
        self._fetcher.stop_at({one: self._stops[one] for one in self._fetcher.positions()})

    # The group

    def _commit(self) -> None:
        assert self._member is not None
        changed = {one: offset for one, offset in self._handled.items() if self._committed.get(one) != offset}
        self._member.commit(changed)
        self._committed |= changed

    def _leave(self) -> None:
        assert self._member is not None
        self._member.end_soon()
        try:
            if not self._member.must_rejoin:
                self._commit()
        finally:
            self._member.leave()


def _limited(batches: list[Batch], left: int) -> tuple[list[Batch], int]:
    """Return the first batches with at most `left` records together, and how many are left then."""
    kept = []
    for batch in batches:
        if not left:
            break
        kept.append(batch.limited(left))
        left -= min(left, batch.record_count)
    return kept, left


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
