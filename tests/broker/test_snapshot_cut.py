"""The cut of a snapshot: all logs and the catalogue at one moment, whatever happens meanwhile.

A naive twin writes down the state of the node after every step. The restored node has to be in one of these states, as
it was between the begin and the end of the snapshot.
"""

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire.broker.partition import Partition
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header
from storage.errors import StorageError
from tests.end_to_end.seeds import announced_seed
from tests.support.backups import new_builder, restore, write_backup
from tests.support.batches import split_batches
from tests.support.effort import repetitions
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.rewriting import batches_of, write_replacement

RUNS = repetitions(quick=12, full=60)
STEPS_MAX = 20_000
STEPS_BEFORE = 120
NAMES = ("a", "b", "c", "d")
PRODUCERS = (7, 8)
NOW_MS = 1_600_000_000_000


class LogFacts(NamedTuple):
    """What a reader of a log can see, and what it knows of producers."""

    topic_id: bytes
    start_offset: int
    end_offset: int
    producers: frozenset[tuple[int, int]]
    first_unstable: int | None


class State(NamedTuple):
    revision: int
    logs: dict[str, LogFacts]


class Life:
    """A node with small segments to which everything happens at random."""

    def __init__(self, node: QuietNode, chance: random.Random) -> None:
        self.node = node
        self.chance = chance
        self.sequences: dict[tuple[bytes, int, int], int] = {}
        # The content of every batch that was ever appended, by topic id, partition and base offset. After a truncation
        # an offset is assigned again.
        self.batches: dict[tuple[bytes, int, int], set[bytes]] = {}
        self.known: dict[tuple[bytes, int], LogFacts] = {}
        self.states: list[State] = []
        self.counts: dict[str, int] = {}

    async def step(self) -> None:
        actions = {
            self.append: 30,
            self.roll: 8,
            self.park: 4,
            self.replace: 4,
            self.drop: 3,
            self.delete_records: 4,
            self.create: 1,
            self.delete: 1,
            self.extend: 1,
            self.truncate: 1,
        }
        action = self.chance.choices(list(actions), list(actions.values()))[0]
        self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1
        made = action()
        if made is not None:
            await made
        self.note()

    def note(self) -> None:
        logs = {}
        for topic in self.node.topics:
            for partition in topic.partitions:
                key = topic.topic_id, partition.index
                if partition.is_open:
                    self.known[key] = facts_of(topic.topic_id, partition)
                if key in self.known and self.known[key].end_offset:
                    logs[f"{topic.name}-{partition.index}"] = self.known[key]
        self.states.append(State(self.node.metastore.revision, logs))

    # --- actions

    def partition(self) -> tuple[bytes, Partition] | None:
        topics = [topic for topic in self.node.topics if topic.partitions]
        if not topics:
            return None
        topic = self.chance.choice(topics)
        return topic.topic_id, self.chance.choice(topic.partitions)

    def append(self) -> None:
        chosen = self.partition()
        if chosen is None:
            return
        topic_id, partition = chosen
        producer = self.chance.choice((*PRODUCERS, -1, -1))
        if producer == PRODUCERS[1] and self.chance.random() < 0.3:
            if log_of(partition).producers.open_transaction(producer) is not None:
                self._keep(topic_id, partition, partition.append_marker(producer, 0, 0, self.chance.random() < 0.5))
            return
        key = topic_id, partition.index, producer
        count = self.chance.randint(1, 3)
        batch = memoryview(
            build_batch(
                [Record(None, self.chance.randbytes(self.chance.randint(1, 200)), NOW_MS) for _ in range(count)],
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=self.sequences.get(key, 0) if producer >= 0 else -1,
                is_transactional=producer == PRODUCERS[1],
            )
        )
        appended = partition.append(batch, check_batch(batch))
        self.sequences[key] = self.sequences.get(key, 0) + count
        self._keep(topic_id, partition, appended)

    def _keep(self, topic_id: bytes, partition: Partition, appended: Any) -> None:
        read = log_of(partition).read(appended.base_offset, 10**6, appended.last_offset + 1)
        (batch,) = split_batches(read.view)[:1]
        self.batches.setdefault((topic_id, partition.index, appended.base_offset), set()).add(bytes(batch))

    def roll(self) -> None:
        chosen = self.partition()
        if chosen is not None:
            log_of(chosen[1]).roll(NOW_MS)

    def park(self) -> None:
        chosen = self.partition()
        if chosen is not None and chosen[1].is_open:
            self.node.topics.park(chosen[1])

    def replace(self) -> None:
        """Compaction that removes a batch of a closed segment, if it is not the last of a producer."""
        chosen = self.partition()
        if chosen is None:
            return
        log = log_of(chosen[1])
        sealed = [one for one in list(log.segments())[:-1] if one.is_sealed and not one.is_seal_pending]
        if not sealed:
            return
        segment = self.chance.choice(sealed)
        kept = batches_of(segment)
        plain = [one for one in kept if parse_header(one).producer_id < 0]
        if len(kept) < 2 or not plain:
            return
        kept.remove(self.chance.choice(plain))
        new = write_replacement(self.node.files, log.directory, [segment], [bytes(one) for one in kept], 300)
        clean_upto = max(log.clean_upto, segment.next_offset)
        aborted = segment.aborted
        if aborted:
            return
        for old in log.replace_segments([segment], [new], clean_upto):
            old.delete_files()

    def drop(self) -> None:
        chosen = self.partition()
        if chosen is None:
            return
        log = log_of(chosen[1])
        segments = list(log.segments())
        if len(segments) < 3:
            return
        log.advance_log_start_offset(max(segments[1].base_offset, log.log_start_offset))
        for segment in log.drop_segments():
            segment.delete_files()

    def delete_records(self) -> None:
        """DeleteRecords, before retention removes segments."""
        chosen = self.partition()
        if chosen is not None:
            log = log_of(chosen[1])
            log.advance_log_start_offset(self.chance.randint(log.log_start_offset, log.log_end_offset))

    def truncate(self) -> None:
        chosen = self.partition()
        if chosen is None:
            return
        partition = chosen[1]
        log = log_of(partition)
        if log.log_end_offset - log.log_start_offset < 4 or len(log.producers):
            return
        log.truncate(log.log_end_offset - 2)
        # The node never truncates a log that has been read, so its high watermark does not move back.
        partition.high_watermark = min(partition.high_watermark, log.log_end_offset)

    async def create(self) -> None:
        missing = [name for name in NAMES if self.node.topics.get(name) is None]
        if missing:
            await self.node.create(self.chance.choice(missing), 2, index_interval_bytes="100")

    async def delete(self) -> None:
        topics = list(self.node.topics)
        if len(topics) > 1:
            await self.node.topics.delete(self.chance.choice(topics))

    async def extend(self) -> None:
        topics = [topic for topic in self.node.topics if len(topic.partitions) < 4]
        if topics:
            topic = self.chance.choice(topics)
            await self.node.topics.create_partitions(topic, len(topic.partitions) + 1)


def facts_of(topic_id: bytes, partition: Partition) -> LogFacts:
    log = log_of(partition)
    known = {one: log.producers.get(one) for one in PRODUCERS}
    last = frozenset((one, state.last_sequence) for one, state in known.items() if state is not None)
    start, end = log.log_start_offset, log.log_end_offset
    return LogFacts(topic_id, start, end, last, log.producers.first_unstable(end))


@pytest.mark.parametrize("run", range(RUNS))
def test_a_snapshot_is_the_state_of_all_logs_at_one_moment(tmp_path: Path, run: int) -> None:
    chance = random.Random(announced_seed() + run)
    check_one_life(tmp_path, chance)


@in_loop
async def check_one_life(tmp_path: Path, chance: random.Random) -> None:
    with QuietNode(tmp_path / "old", more_dirs=[tmp_path / "old2"]) as node:
        life = Life(node, chance)
        await life.create()
        for _ in range(chance.randrange(STEPS_BEFORE)):
            await life.step()
        life.note()
        begun = len(life.states) - 1
        builder = new_builder(node)
        building = asyncio.ensure_future(builder.build())
        while not building.done():
            assert len(life.states) < STEPS_MAX
            for _ in range(chance.randrange(3)):
                await life.step()
            await asyncio.sleep(0)
        built = building.result()
        for _ in range(chance.randrange(60)):  # what happens later must not change the snapshot
            await life.step()
        backup = write_backup(built, tmp_path / "backup")
        states, batches = life.states[begun:], life.batches
    print(life.counts, "states", len(states), "rounds", builder.round_count)
    restore(backup, tmp_path / "new", tmp_path / "new2")
    with QuietNode(tmp_path / "new", more_dirs=[tmp_path / "new2"]) as node:
        assert not node.topics.offline_partitions
        found = found_logs(node)
        moments = [at for at, state in enumerate(states) if state == State(built.revision, found)]
        assert moments, nearest(found, built.revision, states)
        check_batches(node, batches)


def nearest(found: dict[str, LogFacts], revision: int, states: list[State]) -> str:
    """The differences to the state that is most like the one that was found."""

    def differences(state: State) -> list[str]:
        wrong = [f"revision {state.revision}, found {revision}"] if state.revision != revision else []
        for folder in sorted({*state.logs, *found}):
            if state.logs.get(folder) != found.get(folder):
                wrong.append(f"{folder}: {state.logs.get(folder)}, found {found.get(folder)}")
        return wrong

    fewest: list[str] = min((differences(state) for state in states), key=lambda some: len(some))
    return "\n".join(fewest)


def found_logs(node: QuietNode) -> dict[str, LogFacts]:
    found = {}
    for topic in node.topics:
        for partition in topic.partitions:
            facts = facts_of(topic.topic_id, partition)
            if facts.end_offset:
                found[f"{topic.name}-{partition.index}"] = facts
    return found


def check_batches(node: QuietNode, expected: dict[tuple[bytes, int, int], set[bytes]]) -> None:
    """Every batch that is there is one that was appended there; none is damaged."""
    for topic in node.topics:
        for partition in topic.partitions:
            log = log_of(partition)
            assert not log.quarantined, (topic.name, log.quarantined)
            assert log.damage is None
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                try:
                    view = log.read(offset, 10**6, log.log_end_offset).view
                except StorageError as error:
                    raise AssertionError(f"{topic.name}-{partition.index} at {offset}") from error
                if not view:
                    break
                for batch in split_batches(view):
                    header = parse_header(batch)
                    assert bytes(batch) in expected[topic.topic_id, partition.index, header.base_offset]
                    offset = header.last_offset + 1
