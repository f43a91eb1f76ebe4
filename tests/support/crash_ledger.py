"""What one log was told and what it promised, and whether it keeps its word after a crash.

The unit is the batch, as it lies in the log: its bytes hold its offset, so the same bytes are the same place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.batch.markers import read_marker
from storage.batch.record_batch import check_batch, parse_header
from storage.errors import DamagedLog, QuarantinedRange
from storage.log.log import Log
from storage.log.producers import WINDOW_BATCHES
from tests.support.batches import NOW_MS, split_batches

READ_BYTES_MAX = 1024 * 1024


@dataclass
class Sent:
    """One batch of an idempotent producer, as the producer has it; ``base_offset`` once a log took it."""

    template: bytes
    base_sequence: int
    base_offset: int = -1
    last_offset: int = -1
    is_acknowledged: bool = False
    # Where it was when a cut took it back; the cut may not have come about.
    cut_from: tuple[int, int] = (-1, -1)


@dataclass
class SimulatedProducer:
    """Keeps what is not acknowledged and sends it again after a crash, in order, as clients do."""

    producer_id: int
    next_sequence: int = 0
    # Batches that were cut off; when they are as many as a log remembers, it knows nothing of the ones before them.
    cut_count: int = 0
    # First sequences of batches that compaction removed.
    compacted: set[int] = field(default_factory=set)
    sent: list[Sent] = field(default_factory=list)

    def unplaced(self) -> Sent | None:
        return next((sent for sent in self.sent if sent.base_offset < 0), None)

    def has_room(self) -> bool:
        """Whether one more batch may be on its way; with the last one answered they are as many as a log remembers."""
        return sum(sent.base_offset >= 0 and not sent.is_acknowledged for sent in self.sent) < WINDOW_BATCHES - 1

    def last_acknowledged(self) -> Sent | None:
        return next((sent for sent in reversed(self.sent) if sent.is_acknowledged), None)


class Ledger:
    """The truth about one partition. Every method that finds a broken promise raises AssertionError."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Whatever was handed to the log, acknowledged or not: nothing else may ever be read.
        self.written: set[bytes] = set()
        # In the log, not acknowledged yet.
        self.open: dict[int, bytes] = {}
        self.promised: dict[int, bytes] = {}
        self.promised_end = 0
        self.start = 0
        self.producers = [SimulatedProducer(1), SimulatedProducer(2)]

    def placed(self, batch: bytes) -> None:
        self.written.add(batch)
        self.open[parse_header(batch).base_offset] = batch

    def acknowledge(self, synced_offset: int) -> None:
        """The log says that everything below is safe."""
        for base_offset in [base_offset for base_offset in self.open if base_offset < synced_offset]:
            batch = self.open.pop(base_offset)
            assert parse_header(batch).last_offset < synced_offset, f"{self.name}: a batch is synced in part"
            before = self.promised.get(base_offset, batch)
            assert before == batch, f"{self.name}: offset {base_offset} was given to two acknowledged batches"
            self.promised[base_offset] = batch
        self.promised_end = max(self.promised_end, synced_offset)
        for producer in self.producers:
            for sent in producer.sent:
                if 0 <= sent.base_offset < synced_offset and not sent.is_acknowledged:
                    sent.is_acknowledged = True
                    producer.cut_count = 0

    # --- promises that are taken back on purpose

    def advance(self, offset: int) -> None:
        self.start = max(self.start, offset)
        for batches in (self.promised, self.open):
            for base_offset, batch in list(batches.items()):
                if parse_header(batch).last_offset < self.start:
                    del batches[base_offset]

    def compacted(self, removed: list[bytes]) -> None:
        for batch in removed:
            header = parse_header(batch)
            self.promised.pop(header.base_offset, None)
            self.open.pop(header.base_offset, None)
            for producer in self.producers:
                if header.producer_id == producer.producer_id:
                    producer.compacted.add(header.base_sequence)

    def truncate(self, offset: int) -> None:
        for batches in (self.promised, self.open):
            for base_offset, batch in list(batches.items()):
                if parse_header(batch).last_offset >= offset:
                    del batches[base_offset]
        # A batch that is cut in its middle goes as a whole, also one that was not promised any more.
        ends = [parse_header(batch).last_offset + 1 for batch in self.promised.values()]
        self.promised_end = max(ends, default=0)
        for producer in self.producers:
            for sent in producer.sent:
                if sent.last_offset >= offset:
                    producer.cut_count += 1
                    # Whether it is gone is known once it was sent again.
                    sent.cut_from = sent.base_offset, sent.last_offset
                    sent.base_offset = sent.last_offset = -1
                    sent.is_acknowledged = False

    # --- after a crash

    def crashed(self) -> None:
        """Nobody knows what became of what was not acknowledged."""
        self.open.clear()
        for producer in self.producers:
            for sent in producer.sent:
                if not sent.is_acknowledged:
                    sent.base_offset = sent.last_offset = -1

    def check(self, log: Log) -> None:
        """Everything promised is there, once, in order, under its offset, and nothing is there that was never sent."""
        where = self._facts(log)
        assert log.damage is None, f"{where}: {log.damage}"
        assert not log.quarantined, f"{where}: {log.quarantined}"
        # Where nothing was promised between the two, as behind a cut to nothing, the log may begin later.
        start_max = max(self.start, min(self.promised, default=self.promised_end))
        assert log.log_start_offset <= start_max, f"{where}: the log starts too late"
        assert log.log_end_offset >= self.promised_end, f"{where}: the log ends too early"
        found = self.read(log)
        for base_offset, batch in self.promised.items():
            assert base_offset in found, f"{where}: the acknowledged batch at {base_offset} is gone"
            assert found[base_offset] == batch, f"{where}: another batch is at {base_offset}"
        self._check_producers(log, found)
        self._check_transactions(log, found)
        self._place(log, found, is_sent_again=True)
        self.open = {base: batch for base, batch in found.items() if base not in self.promised and base >= self.start}

    def check_spoiled(self, log: Log, spoiled: int) -> None:
        """One promised batch was changed on disk: all others are there, and that one is not passed off as another."""
        where = f"{self._facts(log)}, spoiled {spoiled}"
        changed = self.promised.pop(spoiled)
        end = parse_header(changed).last_offset + 1
        for one in log.quarantined:
            assert spoiled <= one.start_offset < one.end_offset <= end, f"{where}: {one}"
        is_last = spoiled >= max(self.promised, default=0)
        assert log.damage is None or (is_last and log.damage.offset == spoiled), f"{where}: {log.damage}"
        found: dict[int, bytes] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                read = log.read(offset, 1, log.log_end_offset)
            except QuarantinedRange as range_:
                offset = max(range_.end_offset, offset + 1)
                continue
            except DamagedLog:
                # A sealed segment is not walked at the start: whoever reads there stumbles over what was changed.
                assert spoiled <= offset < end, f"{where}: {offset} cannot be read"
                offset = end
                continue
            assert read.next_offset > offset, f"{where}: nothing at {offset}"
            if not spoiled <= offset < end:
                found[parse_header(read.view).base_offset] = bytes(read.view)
            offset = read.next_offset
        for base_offset, batch in self.promised.items():
            assert found.get(base_offset) == batch, f"{where}: the acknowledged batch at {base_offset} is gone"

    def _facts(self, log: Log) -> str:
        return f"{self.name} {log.log_start_offset}..{log.log_end_offset}, promised {self.start}..{self.promised_end}"

    def read(self, log: Log) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset, end = log.log_start_offset, log.log_end_offset
        first = offset
        while offset < end:
            read = log.read(offset, READ_BYTES_MAX, end)
            assert read.next_offset > offset, f"{self.name}: nothing at {offset}"
            for view in split_batches(read.view):
                batch = bytes(view)
                header = parse_header(batch)
                assert batch in self.written, f"{self.name}: nobody wrote the batch at {header.base_offset}"
                assert header.base_offset >= offset or offset == first, f"{self.name}: {header.base_offset} comes twice"
                assert header.base_offset not in found, f"{self.name}: {header.base_offset} comes twice"
                found[header.base_offset] = batch
                offset = header.last_offset + 1
            offset = max(offset, read.next_offset)
        return found

    def not_truncated(self, log: Log) -> None:
        """The log refused to be cut, so everything is as it was, though nothing is promised any more."""
        found = self.read(log)
        self._place(log, found, is_sent_again=False)
        self.open.update({base: batch for base, batch in found.items() if base not in self.promised})

    def _place(self, log: Log, found: dict[int, bytes], *, is_sent_again: bool) -> None:
        """A cut that did not come about leaves batches that were answered long ago: nobody sends those again.

        Only the last few batches of a producer, those that a log remembers, may come once more, if any do. An older one
        that is not found was compacted away before the cut.
        """
        headers = [parse_header(found[base_offset]) for base_offset in sorted(found)]
        for producer in self.producers:
            own = [header for header in headers if header.producer_id == producer.producer_id]
            sent_again = self._remembered(log, producer) if is_sent_again else 0
            old = {header.base_sequence: header for header in own[: max(len(own) - sent_again, 0)]}
            found_sequences = [header.base_sequence for header in own]
            for sent in producer.sent:
                if sent.base_offset >= 0:
                    continue
                if sent.base_sequence in old:
                    header = old[sent.base_sequence]
                    sent.base_offset, sent.last_offset = header.base_offset, header.last_offset
                elif (
                    sent.base_sequence in producer.compacted
                    and sent.base_sequence not in found_sequences
                    and sent.base_sequence < max(found_sequences, default=0)
                ):
                    sent.base_offset, sent.last_offset = sent.cut_from
                    sent.is_acknowledged = True

    @staticmethod
    def _remembered(log: Log, producer: SimulatedProducer) -> int:
        """How many batches of a producer the log has to know again.

        After a cut these may be fewer than without it: what was before them in another segment is not looked for.
        """
        state = log.producers.get(producer.producer_id)
        return len(state.batches) if state is not None and producer.cut_count else WINDOW_BATCHES

    def _check_producers(self, log: Log, found: dict[int, bytes]) -> None:
        next_sequences: dict[int, int] = {}
        for base_offset in sorted(found):
            header = parse_header(found[base_offset])
            if header.producer_id >= 0 and not header.is_transactional:
                expected = next_sequences.get(header.producer_id, 0)
                assert header.base_sequence >= expected, f"{self.name}: a producer's batch is in the log twice"
                next_sequences[header.producer_id] = header.base_sequence + header.last_offset_delta + 1
        for producer in self.producers:
            last = producer.last_acknowledged()
            if last is None:
                continue
            if producer.cut_count and last.base_offset not in self.promised:
                continue
            later = {base for base, batch in found.items() if parse_header(batch).producer_id == producer.producer_id}
            state = log.producers.get(producer.producer_id)
            if state is not None:
                # What lies below the log start cannot be read any longer, but is remembered.
                later |= {one.base_offset for one in state.batches if one.base_offset < log.log_start_offset}
            if sum(base > last.base_offset for base in later) >= max(self._remembered(log, producer), 1):
                continue  # a client has no more than that in flight, so this one does not come again
            again = memoryview(bytearray(last.template))
            told = log.append(again, check_batch(again), max(log.epochs.latest, 0), NOW_MS)
            assert told.is_duplicate, f"{self.name}: a repeated batch was taken for a new one"
            assert told.base_offset == last.base_offset, f"{self.name}: a repetition was answered with another offset"

    def _check_transactions(self, log: Log, found: dict[int, bytes]) -> None:
        """What the log says of transactions is what its batches say; of those below its start nobody can tell."""
        where = self._facts(log)
        start, end = log.log_start_offset, log.log_end_offset
        opened: dict[int, int] = {}
        aborted: dict[tuple[int, int], int] = {}
        for base_offset in sorted(found):
            header = parse_header(found[base_offset])
            if header.is_control:
                marker = read_marker(found[base_offset])
                assert marker is not None
                first = opened.pop(header.producer_id, base_offset)
                if not marker.is_commit:
                    aborted[header.producer_id, base_offset] = first
            elif header.is_transactional:
                opened.setdefault(header.producer_id, base_offset)
        told = {(one.producer_id, one.last_offset): one.first_offset for one in log.aborted_between(start, end)}
        assert told.keys() <= aborted.keys(), f"{where}: aborted transactions are told whose markers are not there"
        for (producer_id, marker_offset), first in aborted.items():
            if first < marker_offset:
                assert (producer_id, marker_offset) in told, f"{where}: the abort at {marker_offset} is not told"
                told_first = told[producer_id, marker_offset]
                assert told_first <= first, f"{where}: a transaction is told to begin at {told_first}, not {first}"
                assert told_first == first or told_first < start, f"{where}: {told_first} is not {first}"
        told_open = log.producers.open_first_offsets
        for producer_id, first in opened.items():
            assert producer_id in told_open, f"{where}: the transaction at {first} is not known to be open"
            told_first = told_open[producer_id]
            assert told_first == first or told_first < start, f"{where}: open at {told_first}, not {first}"
        for producer_id, first in told_open.items():
            assert producer_id in opened or first < start, f"{where}: a transaction at {first} is not there"
        stable = max(min([end, *told_open.values()]), start)
        assert log.last_stable_offset(end) == stable, f"{where}: the last stable offset is not {stable}"
