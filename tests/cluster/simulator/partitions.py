"""Streams that are Kafka partitions: their payloads are record batches, their replicas keep them in a log.

A leader gives each batch its offset and checks its sequence. Both need everything before the open segment, so a new
leader first replays the log through a reader.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kwire.cluster.core.control import Described
from kwire.cluster.core.entries import Position
from kwire.cluster.core.messages import Fetched, SegmentId
from kwire.cluster.core.reader.reader import Reader, Trimmed
from storage.batch.format import LENGTH_OVERHEAD, PLACEMENT
from storage.batch.record_batch import Record, build_batch, parse_header
from storage.log.producers import ProducerStates
from tests.cluster.simulator.client_node import ClientNode
from tests.cluster.simulator.ledger import Ledger
from tests.cluster.simulator.network import Network
from tests.cluster.simulator.options import Options
from tests.cluster.simulator.world import World

# As Kafka's clients: brokers remember the last five batches of a producer.
IN_FLIGHT_MAX: Final = 5
NOW_MS: Final = 1_800_000_000_000


class Batch(Struct):
    """A batch of a producer, without its offset."""

    producer_id: int
    base_sequence: int
    content: bytearray


class Producer:
    """An idempotent producer. It repeats what was not acknowledged at each new leader, in order."""

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._next_sequence = 0
        self._pending: list[Batch] = []
        # The leader that the producer is connected to, and how many of the pending batches were sent to it.
        self._epoch = 0
        self._sent_count = 0

    def next_batch(self, epoch: int, chance: Random, sizes: tuple[int, ...]) -> Batch | None:
        """The next batch for the leader of this epoch; None if too many are in flight, or there is a newer leader."""
        if epoch < self._epoch:
            return None
        if epoch > self._epoch:
            self._epoch, self._sent_count = epoch, 0
        if self._sent_count == len(self._pending):
            if len(self._pending) >= IN_FLIGHT_MAX:
                return None
            self._pending.append(self._new_batch(chance, sizes))
        self._sent_count += 1
        return self._pending[self._sent_count - 1]

    def _new_batch(self, chance: Random, sizes: tuple[int, ...]) -> Batch:
        sequence = self._next_sequence
        value = f"{self._producer_id}/{sequence} ".encode() + b"v" * chance.choice(sizes)
        records = [Record(None, value, NOW_MS + sequence + one) for one in range(chance.choice((1, 1, 2, 3)))]
        content = build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        self._next_sequence += len(records)
        return Batch(self._producer_id, sequence, bytearray(content))

    def acknowledged(self, batch: Batch) -> None:
        if batch in self._pending:
            at = self._pending.index(batch)
            del self._pending[at]
            self._sent_count -= at < self._sent_count


class LogEnd:
    """What a leader has to know of the log before it appends: its end offset and its producers."""

    def __init__(self, offset: int = 0, producers: ProducerStates | None = None) -> None:
        self.offset = offset
        self.producers = producers or ProducerStates()

    def copy(self) -> LogEnd:
        return LogEnd(self.offset, ProducerStates.decode(self.producers.encode()))

    def add(self, batch: bytes | bytearray) -> None:
        header = parse_header(batch)
        assert header.base_offset == self.offset, f"offset {header.base_offset} follows {self.offset - 1}"
        self.producers.record(header, header.base_offset, -1, NOW_MS)
        self.offset = header.last_offset + 1


# What came before a batch that may become the first one of its log, by stream and position. A broker keeps it in the
# snapshots of its producers: a leader that replays a trimmed log can not learn it from the batches.
LogEnds = dict[tuple[str, Position], LogEnd]


class PartitionClientNode(ClientNode):
    """A client of a partition. It appends when it leads and has replayed everything before its segment."""

    def __init__(
        self,
        number: int,
        stream: str,
        world: World,
        network: Network,
        options: Options,
        ledger: Ledger,
        producers: list[Producer],
        log_ends: LogEnds,
    ) -> None:
        self._producers, self._log_ends = producers, log_ends
        super().__init__(number, stream, world, network, options, ledger)

    def _start(self, name: str, candidacy: int) -> None:
        super()._start(name, candidacy)
        self._reader = Reader(self.name, self.stream, self._options.limits, seed=self._number)
        self._replayed = LogEnd()
        self._is_after_gap = False
        # The end of this leader's log, and its epoch.
        self._end: tuple[int, LogEnd] | None = None
        self._sent: dict[tuple[str, int, int], tuple[Producer, Batch]] = {}

    def _log_end(self) -> LogEnd | None:
        epoch, segment = self.writer.epoch, self.writer.open_segment
        if not epoch or segment is None:
            return None
        if (self._end is None or self._end[0] != epoch) and self._reader.position == (segment.number, 1):
            self._end = epoch, self._replayed.copy()
        return self._end[1] if self._end is not None and self._end[0] == epoch else None

    def _tick(self, life: int) -> None:
        is_awake = life == self._life and self._world.now >= self._paused_until
        if is_awake and self.writer.open_segment is not None and self._log_end() is None:
            self._reader.tick(self._clock.now)
            self._send_reads()
        super()._tick(life)

    def receive(self, source: str, body: object) -> None:
        if self._world.now >= self._paused_until:
            if isinstance(body, Described):
                self._reader.control(body, self._clock.now)
                self._replay()
            elif isinstance(body, Fetched):
                self._reader.step(body, self._clock.now)
                self._replay()
            self._send_reads()
            if isinstance(body, Fetched):
                return
        super().receive(source, body)

    def _replay(self) -> None:
        for delivery in self._reader.deliveries:
            if isinstance(delivery, Trimmed):
                self._is_after_gap = True
                continue
            if self._is_after_gap:
                self._replayed = self._log_ends[self.stream, delivery.position].copy()
                self._is_after_gap = False
            assert delivery.payload is not None
            self._replayed.add(delivery.payload)
        self._reader.deliveries.clear()

    def _send_reads(self) -> None:
        messages, self._reader.messages = self._reader.messages, []
        requests, self._reader.requests = self._reader.requests, []
        if self._log_end() is None:
            for message in messages:
                self._network.send(message.source, message.target, message.body)
            for request in requests:
                self._network.send(self.name, "m", request)

    def _append_next(self) -> None:
        end, epoch = self._log_end(), self.writer.epoch
        if end is None:
            return
        producer = self._chance.choice(self._producers)
        batch = producer.next_batch(epoch, self._chance, self._options.payload_bytes)
        if batch is None:
            return
        if end.producers.check(parse_header(batch.content)) is not None:
            self._world.fired["repeated batch"] += 1
            producer.acknowledged(batch)
            return
        content = bytearray(batch.content)
        PLACEMENT.pack_into(content, 0, end.offset, len(content) - LENGTH_OVERHEAD, epoch)
        position = self.writer.append(bytes(content), self._clock.now)
        assert position is not None
        if self._options.trimming:
            self._log_ends[self.stream, position] = end.copy()
        end.add(content)
        self._sent[self.name, *position] = producer, batch
        self._ledger.appended(self, SegmentId(self.stream, position.segment_number), position, bytes(content))

    def _start_after(self, acked: Position, chance: Random) -> Position:
        """The start is a batch that stays: an empty log would not show its end offset."""
        return acked

    def _acked(self, position: Position) -> None:
        super()._acked(position)
        producer, batch = self._sent.pop((self.name, *position))
        producer.acknowledged(batch)
