"""A log with numbers as offsets, over a log with markers, aborted transactions and records of other writers.

It is compared with a list of all events that were committed.
"""

import os
import random
from collections.abc import Iterator

import pytest

from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.event_store.journal import DIGEST_BYTES, JournalCommit, JournalPart
from kwire.streams.events.event import Envelope, Event, NewEvent
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NotReady, StreamRead
from kwire.streams.remote.log import WAITS_MAX
from kwire.streams.remote.merging import stamp_producer
from kwire.streams.remote_events import numbered_log as numbered_log_module
from kwire.streams.remote_events.journal_records import JournalLog, commits_of, is_same_commit, journal_body
from kwire.streams.remote_events.journal_state import Checkpoint, JournalState
from kwire.streams.remote_events.numbered_log import VIEW_BYTES, NumberedLog
from kwire.streams.remote_events.numbers import NUMBER_PLACEHOLDER, first_number, numbered
from kwire.streams.remote_events.places import PLACES_MAX, Places
from storage.batch.builder import build_batch_from_bodies
from storage.batch.format import TRANSACTIONAL_BIT
from storage.batch.record_batch import parse_header
from tests.support.batches import NOW_MS, make_batch
from tests.support.effort import repetitions
from tests.support.memory_log import MemoryLog
from tests.support.node import in_loop

WRITER, OTHER = 7, 8
TOPIC_ID = bytes(range(16))
READS_MAX = 100_000
_ATTRIBUTES = 22


def seeded(count: int) -> Iterator[random.Random]:
    """Generators of random choices; a failed test shows the seed of its last one."""
    given = os.environ.get("KWIRE_TEST_SEED")
    for _ in range(count):
        seed = int(given) if given else random.randrange(1 << 32)
        print(f"KWIRE_TEST_SEED={seed}")
        yield random.Random(seed)


def bodies(payloads: list[int], size_bytes: int = 1) -> list[bytes]:
    envelope = Envelope(b"/topics/t", NOW_MS, NUMBER_PLACEHOLDER)
    return [envelope.encode_body(NewEvent("made", b"%*d" % (size_bytes, one)), "id") for one in payloads]


def transactional(batch: memoryview, producer_id: int = WRITER) -> memoryview:
    batch[_ATTRIBUTES] |= TRANSACTIONAL_BIT
    stamp_producer(batch, producer_id, 0, 0)
    return batch


class ClusterLog(MemoryLog):
    """Its reads have the bounds of a cluster's log: every one has to wait first, and it may wait WAITS_MAX times."""

    def __init__(self, view_bytes: int = VIEW_BYTES) -> None:
        super().__init__("t", 0, "A", 1 << 20)
        self.is_cold = True
        self._view_bytes = view_bytes

    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        if waits > WAITS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"offset {offset} cannot be read in time")
        return super().read(offset, min(max_bytes, self._view_bytes), waits)


class World:
    """A log, the writer that numbers its events, and the payloads of all committed events."""

    def __init__(self, inner: MemoryLog | None = None, event_bytes: int = 1) -> None:
        self.inner = inner or MemoryLog("t", 0, "A", 1 << 20)
        self.event_bytes = event_bytes
        self.log = NumberedLog(self.inner, 0, self.inner.ready)
        self.payloads: list[int] = []
        # The offset of each event.
        self.offsets: list[int] = []

    def write(self, count: int, *, is_commit: bool = True, is_known: bool = True, time_ms: int = NOW_MS) -> None:
        first = len(self.payloads)
        payloads = list(range(first, first + count)) if is_commit else [-1] * count
        batch, _ = build_batch_from_bodies(numbered(bodies(payloads, self.event_bytes), first), time_ms)
        offset = self.inner.bounds().end
        self.inner.append_in_transaction(transactional(batch))
        self.inner.end_transaction(WRITER, is_commit, time_ms)
        if is_commit:
            self.payloads += payloads
            self.offsets += range(offset, offset + count)
            self.log.committed(first, count, offset if is_known else -1)

    def disturb(self, rng: random.Random) -> None:
        """What other writers do."""
        match rng.randrange(3):
            case 0:
                batch = make_batch(rng.randrange(1, 5))
                self.inner.append(batch, parse_header(batch), lambda outcome: None)
            case 1:
                self.inner.append_in_transaction(transactional(make_batch(2, producer_id=OTHER), OTHER))
                self.inner.end_transaction(OTHER, rng.random() < 0.5, NOW_MS)
            case 2:
                self.write(rng.randrange(1, 4), is_commit=False)

    def reopen(self) -> None:
        """A new process, which knows no places."""
        self.log = NumberedLog(self.inner, len(self.payloads), self.inner.ready)


async def read_from(log: NumberedLog, number: int) -> list[Event]:
    return await drain(EventReader(log, number))


async def drain(reader: EventReader | GlobalReader) -> list[Event]:
    found: list[Event] = []
    for _ in range(READS_MAX):
        portion = reader.read()
        if isinstance(portion, NotReady):
            await portion.wait()
        elif portion:
            found += portion
        else:
            return found
    raise AssertionError("the end is never reached")


@in_loop
async def test_offsets_are_the_numbers_of_events_without_gaps() -> None:
    world = World()
    for count in (1, 3, 2):
        world.write(count)
        world.write(2, is_commit=False)
    events = await read_from(world.log, 0)
    assert [event.offset for event in events] == list(range(6))
    assert [int(event.data) for event in events] == list(range(6))
    assert events[0].metadata == {}
    assert world.log.bounds() == (0, 6, 6)


@in_loop
async def test_every_read_is_that_of_a_list_of_all_committed_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log_module, "WALK_MAX", 5)
    for rng in seeded(repetitions(quick=40, full=200)):
        world = World()
        for _ in range(rng.randrange(1, 60)):
            if rng.random() < 0.4:
                world.disturb(rng)
            else:
                world.write(rng.choice((1, 2, 3, 30)), is_known=rng.random() < 0.5)
            if rng.random() < 0.1:
                world.reopen()
            world.inner.is_cold = rng.random() < 0.3
            number = rng.randrange(len(world.payloads) + 1)
            assert [int(one.data) for one in await read_from(world.log, number)] == world.payloads[number:]


@in_loop
async def test_the_oldest_number_is_found_after_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log_module, "WALK_MAX", 5)
    for rng in seeded(repetitions(quick=20, full=100)):
        world = World()
        for _ in range(rng.randrange(1, 30)):
            if rng.random() < 0.4:
                world.disturb(rng)
            else:
                world.write(rng.choice((1, 2, 7)))
        if rng.random() < 0.5:
            world.reopen()
        await world.log.ready()
        deleted = rng.randrange(world.inner.bounds().end + 1)
        world.inner.delete_before(deleted)
        await world.log.ready()
        oldest = next((number for number, offset in enumerate(world.offsets) if offset >= deleted), None)
        start = len(world.payloads) if oldest is None else oldest
        assert world.log.start_offset == start
        assert [int(one.data) for one in await read_from(world.log, start)] == world.payloads[start:]
        if start:
            with pytest.raises(OffsetOutOfRange):
                await read_from(world.log, start - 1)


async def first_from(log: NumberedLog, number: int) -> int:
    """Return the payload of the first event from a number on. A reader is to find it with few reads."""
    reader = EventReader(log, number)
    for _ in range(WAITS_MAX):
        portion = reader.read(count_max=1)
        if not isinstance(portion, NotReady):
            return int(portion[0].data)
        await portion.wait()
    raise AssertionError(f"event {number} is never reached")


@in_loop
async def test_a_new_process_finds_every_event_with_few_reads() -> None:
    world = World(ClusterLog(), event_bytes=300)
    for _ in range(2300):
        world.write(1)
    for number in (*range(0, 2300, 250), 1999, 2000, 2001, 2299):
        world.reopen()
        assert await first_from(world.log, number) == number


@in_loop
async def test_large_events_and_records_of_others_do_not_end_a_reader() -> None:
    """What is before the event has more bytes than WAITS_MAX views."""
    world = World(ClusterLog(), event_bytes=20_000)
    for _ in range(300):
        world.write(1)
    world.reopen()
    assert await first_from(world.log, 290) == 290
    world = World(ClusterLog(view_bytes=1000), event_bytes=100)
    world.write(1)
    for _ in range(100):
        world.inner.append_in_transaction(transactional(make_batch(10, producer_id=OTHER), OTHER))
        world.inner.end_transaction(OTHER, True, NOW_MS)
    world.write(1)
    world.reopen()
    assert await first_from(world.log, 1) == 1


@in_loop
async def test_an_event_is_found_whatever_the_sizes_of_views_and_walks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for rng in seeded(repetitions(quick=20, full=200)):
        monkeypatch.setattr(numbered_log_module, "WALK_MAX", rng.choice((1, 5, 50, 2000)))
        monkeypatch.setattr(numbered_log_module, "WALK_BYTES", rng.choice((1, 1000, 100_000)))
        monkeypatch.setattr(numbered_log_module, "VIEW_BYTES", rng.choice((1, 300, 10_000)))
        world = World(ClusterLog(view_bytes=rng.choice((1, 500, 5000))), event_bytes=rng.choice((1, 300)))
        for _ in range(rng.randrange(1, 80)):
            if rng.random() < 0.4:
                world.disturb(rng)
            else:
                world.write(rng.choice((1, 2, 3, 30)), is_known=rng.random() < 0.5)
        for number in rng.choices(range(len(world.payloads)), k=5) if world.payloads else ():
            if rng.random() < 0.7:
                world.reopen()
            assert await first_from(world.log, number) == number


@in_loop
async def test_the_end_is_that_of_the_newest_event_whatever_follows_it() -> None:
    for rng in seeded(repetitions(quick=20, full=200)):
        world = World()
        assert await world.log.find_end() == 0
        for _ in range(rng.randrange(1, 30)):
            if rng.random() < 0.7:
                world.disturb(rng)
            else:
                world.write(rng.choice((1, 2, 30)))
            assert await world.log.find_end() == len(world.payloads)


@in_loop
async def test_numbers_are_found_by_time() -> None:
    world = World()
    for second in range(5):
        world.write(2, time_ms=NOW_MS + 1000 * second)
    assert await world.log.offset_for_time(NOW_MS + 2000) == 4
    assert await world.log.offset_for_time(NOW_MS + 2500) == 6
    assert await world.log.offset_for_time(NOW_MS + 9000) == 10


@in_loop
async def test_a_read_waits_for_the_marker_of_a_commit_that_was_acknowledged() -> None:
    world = World()
    world.write(1)
    batch, _ = build_batch_from_bodies(numbered(bodies([1]), 1), NOW_MS)
    offset = world.inner.bounds().end
    world.inner.append_in_transaction(transactional(batch))
    seen: list[int] = []
    world.log.watch(lambda log: seen.append(log.committed_end))
    world.log.committed(1, 1, offset)
    assert seen == [2]
    found = world.log.read(1, 1000)
    assert isinstance(found, NotReady)
    world.inner.end_transaction(WRITER, True, NOW_MS)
    await found.wait()
    assert [int(one.data) for one in await read_from(world.log, 0)] == [0, 1]


@in_loop
async def test_after_a_failure_every_reader_gets_the_error() -> None:
    world = World()
    world.write(1)
    woken: list[int] = []
    world.log.watch(lambda log: woken.append(1))
    world.log.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another bridge has taken over"))
    assert woken == [1]
    with pytest.raises(KafkaError, match="another bridge"):
        world.log.read(0, 1000)


def test_records_of_other_writers_have_no_number() -> None:
    batch = make_batch(3)
    assert first_number(batch, parse_header(batch)) is None
    mine, header = build_batch_from_bodies(numbered(bodies([1, 2]), 41), NOW_MS)
    assert first_number(mine, header) == 41


def test_places_are_bounded_and_keep_the_ends() -> None:
    places = Places()
    for number in range(5 * PLACES_MAX):
        places.add(number, 2 * number)
        assert places.before(number).number == number
    assert len(places._places) <= PLACES_MAX
    assert places.before(0) == (0, 0, 0)


# --- the journal


class Journal:
    """A journal with commits in two topics."""

    def __init__(self, inner: MemoryLog | None = None) -> None:
        self.inner = inner or MemoryLog("__journal", 0, "J", 1 << 20)
        self.log = JournalLog(self.inner, 0, self.inner.ready)
        self.position = 0
        self.ends: dict[bytes, int] = {}
        self.expected: list[tuple[int, str]] = []
        self.state = JournalState(b"j" * 16, None)
        self.commits: list[JournalCommit] = []

    def write(self, rng: random.Random, *, is_commit: bool = True) -> None:
        """One transaction of up to three commits."""
        records: list[tuple[int, bytes]] = []
        expected: list[tuple[int, str]] = []
        position, ends = self.position, dict(self.ends)
        for _ in range(rng.randrange(1, 4)):
            parts: list[JournalPart] = []
            order: list[int] = []
            for index in range(rng.randrange(1, 3)):
                topic_id = bytes([index]) * 16
                count, base = rng.randrange(1, 4), ends.get(topic_id, 0)
                batch, _ = build_batch_from_bodies(numbered(bodies(list(range(base, base + count))), base), NOW_MS)
                batch[:8] = base.to_bytes(8)
                parts.append(JournalPart(topic_id, base, batch))
                ends[topic_id] = base + count
                order += [index] * count
            rng.shuffle(order)
            numbers = [part.base_offset for part in parts]
            for index in order:
                numbers[index] += 1
                expected.append((position + len(expected), f"t{index}-{numbers[index]}"))
            key = b"d" * DIGEST_BYTES + b"key-%d" % position if rng.random() < 0.5 else None
            records.append((position + len(expected) - len(order), journal_body(parts, order, key)))
        batch, _ = build_batch_from_bodies([numbered([body], at)[0] for at, body in records], NOW_MS)
        base_offset = self.inner.bounds().end
        self.inner.append_in_transaction(transactional(batch))
        self.inner.end_transaction(WRITER, is_commit, NOW_MS)
        if is_commit:
            self.log.committed(position, len(expected), base_offset)
            self.state.begin_batch(base_offset, base_offset + len(records), len(batch))
            for commit in commits_of(position, batch):
                self.state.apply(commit)
                self.commits.append(commit)
            self.position, self.ends = position + len(expected), ends
            self.expected += expected


def name_of(topic_id: bytes) -> str | None:
    return f"t{topic_id[0]}"


@in_loop
async def test_the_journal_shows_all_events_with_their_global_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log_module, "WALK_MAX", 5)
    for rng in seeded(repetitions(quick=20, full=100)):
        journal = Journal(ClusterLog(view_bytes=rng.choice((1, 500, 5000))))
        for _ in range(rng.randrange(1, 20)):
            journal.write(rng, is_commit=rng.random() < 0.8)
        if rng.random() < 0.5:
            journal.log = JournalLog(journal.inner, journal.position, journal.inner.ready)
        position = rng.randrange(journal.position + 1)
        found = await drain(GlobalReader(name_of, journal.log, position))
        assert [(one.offset, one.event_id) for one in found] == [one for one in journal.expected if one[0] >= position]


def test_a_state_that_is_read_from_a_checkpoint_is_the_same() -> None:
    rng = random.Random(1)
    journal = Journal()
    for _ in range(30):
        journal.write(rng)
    state = journal.state
    assert (state.position, state.ends) == (journal.position, journal.ends)
    checkpoint = state.checkpoint()
    assert Checkpoint.of_value(checkpoint.as_value()) == checkpoint
    restored = JournalState(b"j" * 16, checkpoint)
    assert (restored.position, restored.ends, restored.next_offset) == (state.position, state.ends, checkpoint.offset)
    assert restored.known_offset == state.next_offset
    restored.forget_others([bytes(16)])
    assert restored.ends == {bytes(16): state.ends[bytes(16)]}


def test_a_commit_is_recognised_in_the_journal() -> None:
    rng = random.Random(2)
    journal = Journal()
    for _ in range(10):
        journal.write(rng)
    commits = journal.commits
    for one in commits:
        (found,) = [other for other in commits if is_same_commit(other, one)]
        assert found is one
        part = one.parts[0]
        batch, _ = build_batch_from_bodies(numbered(bodies([99]), part.base_offset), NOW_MS)
        assert not is_same_commit(one, one._replace(parts=[part._replace(batch=batch)]))


def test_drafts_have_no_numbers_of_their_own() -> None:
    """The header is an attribute, so the metadata of an event cannot have its name."""
    envelope = Envelope(b"/topics/t", NOW_MS, NUMBER_PLACEHOLDER)
    draft = EventDraft("t", "made", b"1", {"ce_kwirenumber": "1"})
    with pytest.raises(Exception, match="reserved"):
        envelope.encode_body(NewEvent(draft.type, draft.payload, draft.metadata), "id")
