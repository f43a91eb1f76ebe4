"""A deterministic environment for the transaction coordinator: the log can lose uncommitted records, and markers are
written when a test says so."""

from collections.abc import Callable, Iterable
from typing import Any

from kwire.coordinator.log_records import KeyValue
from kwire.coordinator.transaction.coordinator import HasTransactionalId, TransactionCoordinator
from kwire.coordinator.transaction.marker_effect import MarkersDone, WriteMarkers
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.shard import TransactionShard
from kwire.coordinator.transaction.states import TopicPartition, TransactionMetadata
from kwire.errors import KafkaError
from tests.coordinator.world import MemoryLog, Timers
from tests.support.clock import ManualClock

SHARD_COUNT = 2
FIRST_FRESH_ID = 1000


class LosableLog(MemoryLog):
    """A log that knows what is committed; the rest may be lost. Commits are told in the order of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[int, int] = {}

    def committed_offset(self, shard: int) -> int:
        return self.committed.get(shard, 0)

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        def told(error: KafkaError | None) -> None:
            if error is None:
                self.committed[shard] = max(offset, self.committed.get(shard, 0))
            call(error)

        assert offset <= len(self.shards.get(shard, ()))
        if self.is_holding or self._held:
            self._held.append(told)
        else:
            told(None)

    def release(self, error: KafkaError | None = None) -> None:
        self.is_holding = False
        while self._held:
            # What comes meanwhile comes behind.
            self._held[0](error)
            self._held.pop(0)

    def key_values(self, shard: int) -> list[KeyValue]:
        """What is in a shard: a transaction coordinator writes nothing but records."""
        anything: Any = self.shards.get(shard, [])
        records: list[KeyValue] = anything
        return records

    def take_appended(self) -> list[KeyValue]:
        """What was appended since this was asked last."""
        anything: Any = self.appended
        self.appended = []
        records: list[KeyValue] = anything
        return records

    def settle(self) -> None:
        """A coordinator starts: what it finds is there for good."""
        self.committed = {shard: len(records) for shard, records in self.shards.items()}

    def lose(self, keeps: Callable[[int], int]) -> None:
        """A power cut: of what is not committed so many records are left as `keeps` says of their number."""
        self.is_holding = False
        self._held = []
        for shard, records in self.shards.items():
            committed = self.committed.get(shard, 0)
            del records[committed + keeps(len(records) - committed) :]


class World:
    """One coordinator and all it touches; `restart` builds a new one on the same log."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.log = LosableLog()
        self.version = 2
        self.settings = TransactionSettings(state_log_num_partitions=SHARD_COUNT, **settings)
        # Markers that are to be written, in the order in which they were decided.
        self.markers: list[tuple[WriteMarkers, MarkersDone]] = []
        self.on_markers: Callable[[WriteMarkers], None] = lambda effect: None
        self._fresh = FIRST_FRESH_ID - 1
        self.transactions = self._build()

    def _build(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            log=self.log,
            clock=self.clock,
            call_later=self.timers.call_later,
            write_markers=self._write_markers,
            transaction_version=lambda: self.version,
            settings=self.settings,
        )

    def _write_markers(self, effect: WriteMarkers, done: MarkersDone) -> None:
        self.markers.append((effect, done))
        self.on_markers(effect)

    def mark(self, failed: Iterable[TopicPartition] = ()) -> None:
        """The markers that were asked for first are written, except those that fail."""
        effect, done = self.markers.pop(0)
        done(frozenset(failed) & effect.partitions)

    def fresh_producer_id(self) -> int:
        self._fresh += 1
        return self._fresh

    @property
    def now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def restart(self) -> None:
        """Whoever waits is told to go elsewhere, and markers that are being written are never heard of again."""
        self.transactions.close()
        self.markers.clear()
        self.log.settle()
        self.transactions = self._build()

    def metadata(self, transactional_id: str = "x") -> TransactionMetadata | None:
        for shard in self.transactions.shards():
            found = shard.transactions.get(transactional_id)
            if found is not None:
                return found.metadata
        return None

    def committed_standing(self, transactional_id: str) -> TransactionMetadata | None:
        """Where the id would stand after a power cut that takes all it can."""
        index = self.transactions.shard_of(transactional_id)
        shard = TransactionShard(self.settings, lambda: self.version)
        for key, value in self.log.key_values(index)[: self.log.committed.get(index, 0)]:
            shard.apply(key, value)
        found = shard.transactions.get(transactional_id)
        return None if found is None else found.metadata

    def ask(self, command: HasTransactionalId[Any]) -> list[Any]:
        """The list fills when the answer comes."""
        answers: list[Any] = []
        self.transactions.submit(command, answers.append)
        return answers

    def durable(self) -> dict[str, TransactionMetadata]:
        return durable(self.transactions.shards())

    def replayed(self) -> dict[str, TransactionMetadata]:
        """What a coordinator that starts now would know."""
        shards = []
        for index in self.log.shards:
            shard = TransactionShard(self.settings, lambda: self.version)
            for key, value in self.log.key_values(index):
                shard.apply(key, value)
            shards.append(shard)
        return durable(shards)


def durable(shards: Iterable[TransactionShard]) -> dict[str, TransactionMetadata]:
    return {one.transactional_id: one.metadata for shard in shards for one in shard.transactions.values()}
