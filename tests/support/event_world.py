"""An event store on a simulated disk, which lives at random and crashes anywhere.

Publishers commit over several topics, Kafka producers send batches, syncs come at some time, in some order, or never;
topics are deleted, made again, put away and cut short. A ledger knows what was asked for, what was answered and what
could be read; after each crash it is asked whether every commit is wholly there or wholly absent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import EVENTS_TOPIC, NewTopic, Topic, Topics
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import load
from kwire.errors import KafkaError, StreamError
from kwire.metastore import EmbeddedMetaStore
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.event_store.pending_commit import Outcome, StoredCommit
from kwire.streams.local import LocalLog
from storage.batch.record_batch import Record, build_batch, check_batch
from storage.data_directory.directories import LogDirectories
from storage.disk.journal import Journal
from storage.errors import StorageError
from storage.log.syncing import sync_all
from storage.segment.segment import LogSegment
from tests.support.clock import ManualClock
from tests.support.event_store import all_events, events_of
from tests.support.events import ReadsHere, validate_now
from tests.support.partition_log import log_of
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

DATA_DIR = "/data"
NAMES = ("a", "b", "c")
PRODUCERS = 2
# Turns of the loop after each step: enough for whatever can go on without a sync.
TURNS = 6
JOBS_MAX = 500


@dataclass(frozen=True)
class EventPlan:
    """What one run does; everything else is chance."""

    steps: int = 30
    lives: int = 3
    crash_within_calls: int = 500
    has_deletions: bool = True
    has_sync_failures: bool = False
    has_full_disks: bool = False


@dataclass
class Asked:
    """One commit: which event was to go to which topic (by its id), and what was answered."""

    parts: dict[bytes, list[int]] = field(default_factory=dict)
    is_acknowledged: bool = False
    is_refused: bool = False
    keyed: tuple[str, list[EventDraft]] | None = None


class SomeSyncs:
    """Sync rounds that come when the world lets them."""

    def __init__(self, world: EventWorld) -> None:
        self._world = world
        self.waiting: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        self.waiting[partition] = None

    def add_within(self, partition: Partition, delay_ms: int) -> None:
        self.add(partition)

    def run(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self.waiting.pop(partition, None)
        begun = [(one, sync) for one in partitions if (sync := one.begin_sync()) is not None]
        failures = sync_all(self._world.files, (), [sync for _, sync in begun])
        for (partition, sync), failure in zip(begun, failures, strict=True):
            partition.end_sync(sync, partition.appended_bytes, failure)


class ThreadlessMetaStore(EmbeddedMetaStore):
    """Commits without a thread, because the simulated disk has one caller at a time."""

    async def _in_thread(self, work: Any, argument: list[bytes]) -> None:
        work(argument)


class EventWorld:
    """See the module's words. A run is repeated by its seed."""

    def __init__(self, seed: int, plan: EventPlan | None = None) -> None:
        self.plan = plan or EventPlan()
        self.chance = Random(seed)
        self.config = load(data_dir=DATA_DIR)
        self.disk = SimulatedDisk()
        SimulatedFiles(self.disk).makedirs(DATA_DIR)
        SimulatedFiles(self.disk).syncfs("/")
        self.disk.call_count = 0
        self.asked: dict[int, Asked] = {}
        # What could be read of each topic, by its id: (commit, number) in order.
        self.seen: dict[bytes, list[tuple[int, int]]] = {}
        # What could be read in the order of all events, by position: topic id, number there, commit, place in it.
        self.ordered: dict[int, tuple[bytes, int, int, int]] = {}
        self.starts: dict[bytes, int] = {}
        self.sequences: dict[tuple[bytes, int], int] = {}
        self.serial = 0
        self.life = 0
        self.is_last = False
        self.crash_count = self.call_count = self.recovered_count = 0
        self.problems: list[BaseException] = []

    # --- lives

    def run(self) -> None:
        for _ in range(self.plan.lives):
            self.disk.crash_at = self.disk.call_count + self.chance.randint(1, self.plan.crash_within_calls)
            self.in_loop(self.live())
            self.crash(is_power_cut=self.chance.random() < 0.6)
        self.disk.crash_at = None
        self.in_loop(self.finish())

    def in_loop(self, life: Coroutine[Any, Any, None]) -> None:
        """Run one life, which may end in the middle of any call."""
        self.jobs: list[Callable[[], None]] = []
        self.lanes = DiskLanes()
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(self.note_problem)
            with suppress(Crashed):
                runner.run(life)
            # Those who still wait are gone with the process.
            for task in asyncio.all_tasks(runner.get_loop()):
                task.cancel()
            self.lanes.close()
        if self.problems:
            raise self.problems[0]

    def note_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Crashed | asyncio.CancelledError):
            self.problems.append(error)

    async def live(self) -> None:
        await self.start()
        for _ in range(self.plan.steps):
            await self.step()
            await self.turns()
        self.note_seen()

    async def start(self) -> None:
        self.life += 1
        self.files = SimulatedFiles(self.disk)
        self.store = LogDirectories([DATA_DIR], self.files, self._later)
        self.store.lock()
        self.metastore = ThreadlessMetaStore(
            Journal.open(f"{DATA_DIR}/metastore.journal", self.files), self.lanes.metadata
        )
        self.syncs = SomeSyncs(self)
        self.topics = Topics(
            self.metastore,
            self.store,
            self.config,
            ManualClock(),
            self.life,
            self.syncs,
            self.lanes,
            partial(LocalLog, ReadsHere(), validate_now),
        )
        check = self.store.check(self.topics.catalogue.folder_ids(), self.topics.deletion_notes.all())
        assert not check.report.unknown
        check.update_folder_list(is_all_online=True)
        assert not check.report.lost
        for folder in sorted(self.store.unclean_folders):
            topic = self.topics.get(folder.rpartition("-")[0])
            if topic is not None:
                topic.partitions[0].open()
        self.events = EventStore(self.topics, self.metastore, ManualClock(), self.syncs)
        opening = asyncio.ensure_future(self.events.open())
        while not opening.done():
            self.syncs.run(list(self.syncs.waiting))
            await asyncio.sleep(0)
        await opening
        self.recovered_count += self.events.pipeline.recovered_count
        assert not self.events.pipeline._incomplete, self.events.pipeline._incomplete
        self.check()
        self.note_seen()
        for name in NAMES:
            if self.topics.get(name) is None:
                await self.topics.create([NewTopic(name, 1, {"kwire.events": "true", "retention.ms": "-1"})])
        if self.plan.has_sync_failures and not self.is_last and self.chance.random() < 0.5:
            self.disk.fail_next(self.chance.choice(["fdatasync", "fsync_dir"]), after=self.chance.randint(0, 12))

    def _later(self, job: Callable[[], None]) -> None:
        assert len(self.jobs) < JOBS_MAX
        self.jobs.append(job)

    async def turns(self) -> None:
        for _ in range(TURNS):
            if self.disk.is_down:
                raise Crashed
            await asyncio.sleep(0)

    def crash(self, *, is_power_cut: bool) -> None:
        self.crash_count += 1
        self.call_count += self.disk.call_count
        if is_power_cut or self.disk.is_lying:
            self.disk = self.disk.after_power_cut(self.chance)
        else:
            self.disk.restarted()
        self.disk.call_count = 0
        self.disk.free_bytes = None
        self.disk.crash_at = None

    async def finish(self) -> None:
        """A last life without trouble: a clean stop leaves nothing to be repaired."""
        self.disk.restarted()
        self.is_last = True
        await self.start()
        await self.publish(is_awaited=True)
        closing = asyncio.ensure_future(self.events.close())
        while not closing.done():
            self.syncs.run(list(self.syncs.waiting))
            await asyncio.sleep(0)
        await closing
        while self.jobs:
            self.jobs.pop(0)()
        self.note_seen()
        self.store.close()
        self.metastore.close()
        while self.jobs:
            self.jobs.pop(0)()
        self.disk = self.disk.after_power_cut(self.chance)
        repaired = self.recovered_count
        await self.start()
        assert self.recovered_count == repaired, "a clean stop left something to repair"

    # --- one step

    async def step(self) -> None:
        if self.chance.random() < 0.05:
            await self.change()
            return
        kinds = ["publish"] * 8 + ["produce"] * 4 + ["sync"] * 9 + ["jobs"] * 2 + ["write_back", "roll", "park", "trim"]
        if self.plan.has_full_disks:
            kinds += ["fill", "again"]
        kind = self.chance.choice(kinds)
        topic = self.topics.get(self.chance.choice(NAMES))
        if kind == "publish":
            await self.publish()
        elif kind == "produce" and topic is not None:
            self.produce(topic)
        elif kind == "sync":
            self.sync()
        elif kind == "jobs":
            for _ in range(min(len(self.jobs), self.chance.randint(1, 4))):
                self.jobs.pop(self.chance.randrange(min(2, len(self.jobs))))()
        elif kind == "write_back":
            self.disk.write_back(self.chance)
        elif kind == "fill":
            self.disk.free_bytes = self.chance.choice([None, 0, 4096, 20_000])
        elif kind == "again" and self.events.pipeline._unapplied:
            self.events.pipeline._retry_unapplied()
        elif topic is not None:
            self.upkeep(kind, topic)

    def upkeep(self, kind: str, topic: Topic) -> None:
        if self.chance.random() < 0.3:
            topic = self.topics.get(EVENTS_TOPIC) or topic
        partition = topic.partitions[0]
        try:
            log = log_of(partition)
            if kind == "roll":
                log.roll(1)
            elif kind == "park":
                self.topics.park(partition)
            elif kind == "trim" and log.is_writable:
                self.note_seen()
                end = partition.high_watermark
                if topic.name == EVENTS_TOPIC:
                    # As retention does; the mark is where a group of commits ends.
                    end = self.topics.retained_from[EVENTS_TOPIC]()
                    if end <= log.log_start_offset:
                        return
                    start = end
                    # With a commit goes its key: the next start would not know it.
                    for position, (_, _, commit, _) in self.ordered.items():
                        if position < start:
                            self.asked[commit].keyed = None
                else:
                    start = self.chance.randint(log.log_start_offset, end)
                self.starts[topic.topic_id] = max(self.starts.get(topic.topic_id, 0), start)
                log.advance_log_start_offset(start)
                for segment in log.drop_segments():
                    self._later(partial(self.delete, segment))
        except StorageError:
            self.meet_failure()

    def delete(self, segment: LogSegment) -> None:
        """As the server does: what cannot be deleted now is tried again later."""
        try:
            segment.delete_files()
        except StorageError:
            self.meet_failure()
            self._later(partial(self.delete, segment))

    async def change(self) -> None:
        topic = self.topics.get(self.chance.choice(NAMES))
        if topic is None or not self.plan.has_deletions:
            return
        try:
            await self.topics.delete(topic)
            if self.chance.random() < 0.7:
                await self.topics.create([NewTopic(topic.name, 1, {"kwire.events": "true", "retention.ms": "-1"})])
        except KafkaError:
            self.meet_failure()

    def meet_failure(self) -> None:
        assert self.plan.has_full_disks or self.plan.has_sync_failures, "a call failed on a disk without faults"

    def sync(self) -> None:
        waiting = list(self.syncs.waiting)
        self.chance.shuffle(waiting)
        self.syncs.run(waiting[: self.chance.randint(1, 4)])

    # --- writers

    async def publish(self, *, is_awaited: bool = False) -> None:
        names = [name for name in NAMES if self.topics.get(name) is not None]
        if not names:
            return
        again = [one for one in self.asked.values() if one.keyed is not None]
        tasks = []
        for _ in range(self.chance.randint(1, 3)):
            if again and self.chance.random() < 0.2:
                known, asked_again = self.chance.choice(again).keyed or ("", [])
                tasks.append(asyncio.ensure_future(self.commit(asked_again, None, known)))
                continue
            self.serial += 1
            asked = self.asked[self.serial] = Asked()
            made = [self.event(asked, self.chance.choice(names), at) for at in range(self.chance.randint(1, 6))]
            key = f"key-{self.serial}" if self.chance.random() < 0.3 else None
            if key is not None:
                asked.keyed = key, made
            tasks.append(asyncio.ensure_future(self.commit(made, asked, key)))
        while is_awaited and not all(task.done() for task in tasks):
            self.syncs.run(list(self.syncs.waiting))
            await asyncio.sleep(0)

    def event(self, asked: Asked, name: str, at: int) -> EventDraft:
        topic = self.topics.get(name)
        assert topic is not None
        asked.parts.setdefault(topic.topic_id, []).append(at)
        return EventDraft(name, "made", self.payload(at))

    def payload(self, at: int) -> bytes:
        padding = "x" * self.chance.choice([0, 10, 300, 3000])
        return json.dumps({"commit": self.serial, "at": at, "padding": padding}).encode()

    async def commit(self, made: list[EventDraft], asked: Asked | None, key: str | None) -> None:
        try:
            await self.events.publish(made, idempotency_key=key)
        except (KafkaError, StreamError):
            return
        if asked is not None:
            asked.is_acknowledged = True

    def produce(self, topic: Topic) -> None:
        producer = self.chance.randrange(PRODUCERS)
        place = topic.topic_id, 1000 * self.life + producer
        sequence = self.sequences.get(place, 0)
        self.serial += 1
        count = self.chance.randint(1, 3)
        asked = self.asked[self.serial] = Asked({topic.topic_id: list(range(count))})
        records = [Record(None, self.payload(at), 1_700_000_000_000) for at in range(count)]
        batch = memoryview(build_batch(records, producer_id=place[1], producer_epoch=0, base_sequence=sequence))
        # A gap would be refused, which says nothing; so what is refused for other reasons ends this producer.
        self.sequences[place] = sequence + count

        def done(outcome: Outcome) -> None:
            asked.is_acknowledged = isinstance(outcome, StoredCommit)

        try:
            self.events.produce(topic, batch, check_batch(batch), done)
            if self.chance.random() < 0.3:  # a client that is in a hurry sends it again
                self.events.produce(topic, batch, check_batch(batch), lambda outcome: None)
        except KafkaError:
            self.meet_failure()

    # --- the ledger

    def contents(self, topic: Topic) -> list[tuple[int, int]]:
        return [(said["commit"], said["at"]) for said in (json.loads(event.data) for event in events_of(topic))]

    def note_seen(self) -> None:
        """What readers can see now has to stay."""
        for name in NAMES:
            topic = self.topics.get(name)
            if topic is not None:
                start = topic.partitions[0].log_start_offset
                kept = self.seen.get(topic.topic_id, [])[:start]
                self.seen[topic.topic_id] = kept + self.contents(topic)
        self.ordered |= self.in_order()

    def in_order(self) -> dict[int, tuple[bytes, int, int, int]]:
        if self.topics.get(EVENTS_TOPIC) is None:
            return {}
        found = {}
        for event in all_events(self.events, self.topics):
            name, _, number = event.event_id.rpartition("-")
            topic, said = self.topics.get(name), json.loads(event.data)
            assert topic is not None
            found[event.offset] = topic.topic_id, int(number), said["commit"], said["at"]
        return found

    def check(self) -> None:
        """Before anybody writes again: every commit is there or not, everywhere alike, and what was promised is."""
        live = [topic for name in NAMES if (topic := self.topics.get(name)) is not None]
        found = {topic.topic_id: self.contents(topic) for topic in live}
        starts = {topic.topic_id: topic.partitions[0].log_start_offset for topic in live}
        is_there = {topic_id: set(events) for topic_id, events in found.items()}
        journaled: dict[bytes, list[tuple[int, int]]] = {topic.topic_id: [] for topic in live}
        in_order = self.in_order()
        journal = self.topics.get(EVENTS_TOPIC)
        oldest = journal.partitions[0].log_start_offset if journal is not None else 0
        for position, event in self.ordered.items():
            if position >= oldest and event[0] in found:
                assert in_order.get(position) == event, f"position {position} is not what it was"
        # What went from the journal since then was there.
        in_order = {position: event for position, event in self.ordered.items() if position < oldest} | in_order
        for _, (topic_id, number, commit, at) in sorted(in_order.items()):
            if topic_id in journaled:
                own = journaled[topic_id]
                assert number == len(own) + 1, f"number {number} of a topic is not numbered as it is in the journal"
                own.append((commit, at))
        for topic in live:
            topic_id = topic.topic_id
            start = starts[topic_id]
            log = log_of(topic.partitions[0])
            assert not log.quarantined, f"{topic.name} is damaged"
            assert log.damage is None, f"{topic.name} is damaged"
            assert start <= self.starts.get(topic_id, 0), f"{topic.name} lost its beginning"
            assert found[topic_id] == journaled[topic_id][start:], f"{topic.name} is not what the journal says"
            assert len(set(journaled[topic_id])) == len(journaled[topic_id]), f"{topic.name} has an event twice"
            seen = self.seen.get(topic_id, [])
            assert seen[start:] == found[topic_id][: max(len(seen) - start, 0)], f"{topic.name} lost what was read"
        for number, asked in self.asked.items():
            whole = {
                topic_id: all((number, at) in set(journaled[topic_id]) for at in ats)
                for topic_id, ats in asked.parts.items()
                if topic_id in journaled
            }
            some = {
                topic_id: any((number, at) in is_there[topic_id] for at in ats)
                for topic_id, ats in asked.parts.items()
                if topic_id in journaled
            }
            assert len(set(whole.values())) <= 1, f"commit {number} is in some topics and not in others: {whole}"
            if not all(whole.values()):
                assert not any(some.values()), f"commit {number} is there in part"
                assert not asked.is_acknowledged, f"commit {number} was acknowledged and is gone"
        for topic_id in set(self.seen) - set(found):
            del self.seen[topic_id]
