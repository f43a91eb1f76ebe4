"""Random lives of subscribers of everything against a model that knows only what was committed.

Commits over several topics, slow readers, readers that resume at a reported offset, retention of the journal,
topics that are deleted and made again: nothing is missing but what a gap names or what was deleted with its topic,
nothing is delivered twice or out of order, and no subscriber is forgotten.
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kwire.broker.partition import Partition
from kwire.errors import OffsetOutOfRange
from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.events.event import Event
from kwire.streams.log import NotReady, StreamLog
from kwire.streams.subscriptions.control_messages import (
    BROADCAST_FAILED,
    DROPPED,
    LAGGED,
    OFFSET_OUT_OF_RANGE,
    RETENTION,
    CaughtUp,
    Closed,
    ControlMessage,
    Gap,
)
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.start import Start, StartKind
from kwire.streams.subscriptions.subscription import OnLag, Subscription
from tests.support.effort import examples
from tests.support.event_store import draft
from tests.support.everything import Everything
from tests.support.partition_log import log_of
from tests.support.subscribing import RecordingSink

TOPICS = ("a", "b", "c-1")
TIMEOUT_MS = 1000
QUEUE_MAX = 12
READERS_MAX = 6
ROOMY = 1_000_000
MACHINE = "kwire.streams.subscriptions"
# So small that a commit takes several batches, and rounds several turns.
EVENTS_PER_READ = 5
UNITS_PER_TURN = 8

COMMITS = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=12)
ROOMS = st.sampled_from([0, 1, 3, 10, 10, ROOMY])
ON_LAG = st.sampled_from(OnLag)


class Committed(NamedTuple):
    topic_id: bytes
    event_id: str
    number: int


class SmallReader(GlobalReader):
    """Reads small batches."""

    def read(self, *_: int) -> list[Event] | NotReady:
        return super().read(EVENTS_PER_READ)


class JudgingSink(RecordingSink):
    """Judges each message as it comes. `next` is the first position that it knows nothing of yet."""

    def __init__(self, machine: "JournalMachine", room: int, on_lag: OnLag) -> None:
        super().__init__(room)
        self.machine = machine
        self.on_lag = on_lag
        self.next = 0
        self.caught_up_at_least = 0
        self.is_over = False

    def begin_at(self, position: int) -> None:
        self.next = position
        self.caught_up_at_least = len(self.machine.committed)

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        # An exception of a sink ends its subscription and goes no further, so it is recorded for the machine.
        try:
            super().send_events(subscription, batch)
            assert not self.is_over
            for event in batch.events:
                self._pass(event.offset)
                committed = self.machine.committed[event.offset]
                assert (event.event_id, json.loads(event.data)) == (committed.event_id, committed.number)
                self.next = event.offset + 1
        except AssertionError as error:
            self.machine.failures.append(error)
            raise

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        try:
            super().send_control(subscription, message)
            self._judge(message)
        except AssertionError as error:
            self.machine.failures.append(error)
            raise

    def _judge(self, message: ControlMessage) -> None:
        assert not self.is_over, "something came after the end"
        if isinstance(message, Gap):
            assert message.reason in (RETENTION, DROPPED)
            assert message.reason == RETENTION or self.on_lag is OnLag.DROP
            assert message.reason == DROPPED or message.to_offset < self.machine.journal.log_start_offset
            self._pass(message.from_offset)
            self.next = message.to_offset + 1
            return
        self._pass(message.offset + 1)
        assert message.offset >= self.next - 1, "a message lies before what was delivered"
        self.next = message.offset + 1
        if isinstance(message, CaughtUp):
            assert self.next >= self.caught_up_at_least
        elif isinstance(message, Closed):
            self.is_over = True
            assert self.on_lag is OnLag.TERMINATE
            assert message.code in (LAGGED, BROADCAST_FAILED, OFFSET_OUT_OF_RANGE)

    def _pass(self, upto: int) -> None:
        """Nothing between is left out but what went with its topic."""
        assert upto >= self.next, "a duplicate, or out of order"
        for committed in self.machine.committed[self.next : upto]:
            assert committed.topic_id in self.machine.deleted, f"{committed} is missing"


class JournalMachine(RuleBasedStateMachine):
    """The real event store and the real machine of subscriptions, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.asyncio_loop = asyncio.new_event_loop()
        self.one = Everything(Path(self.directory), broadcast_timeout_ms=TIMEOUT_MS, recent_events_max=25)
        self.committed: list[Committed] = []
        self.deleted: set[bytes] = set()
        self.counts: dict[bytes, int] = {}
        self.readers: list[tuple[Subscription, JudgingSink]] = []
        self.failures: list[AssertionError] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(f"{MACHINE}.live_feed.EVENTS_PER_READ", EVENTS_PER_READ)
        self.patch.setattr(f"{MACHINE}.delivery_scheduler.LIVE_UNITS_PER_ITERATION", UNITS_PER_TURN)
        self.patch.setattr(f"{MACHINE}.delivery_scheduler.HISTORY_UNITS_PER_ITERATION", UNITS_PER_TURN)
        self.asyncio_loop.run_until_complete(self.one.prepare(*TOPICS))

    @property
    def journal(self) -> Partition:
        return self.one.journal.partitions[0]

    @initialize(commits=st.lists(COMMITS, max_size=4))
    def fill(self, commits: list[list[str]]) -> None:
        self.publish(commits, 0)

    # --- what happens

    @rule(commits=st.lists(COMMITS, min_size=1, max_size=5), turns=st.sampled_from([0, 1, 1, 30]))
    def publish(self, commits: list[list[str]], turns: int) -> None:
        for names in commits:
            self.asyncio_loop.run_until_complete(self._commit(names))
            for _ in range(turns):
                self.one.loop.turn()

    async def _commit(self, names: list[str]) -> None:
        start = len(self.committed)
        ids = await self.one.store.publish([draft(name, start + at) for at, name in enumerate(names)])
        for at, name in enumerate(names):
            topic = self.one.node.topics.get(name)
            assert topic is not None
            number = self.counts[topic.topic_id] = self.counts.get(topic.topic_id, 0) + 1
            assert str(ids[at]) == f"{name}-{number}"
            self.committed.append(Committed(topic.topic_id, f"{name}-{number}", start + at))

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(back=st.integers(-3, 60), on_lag=ON_LAG, room=ROOMS)
    def subscribe(self, back: int, on_lag: OnLag, room: int) -> None:
        self._subscribe(max(len(self.committed) - back, 0), on_lag, room)

    def _subscribe(self, position: int, on_lag: OnLag, room: int) -> None:
        sink = JudgingSink(self, room, on_lag)
        sink.begin_at(position)
        oldest = self.journal.log_start_offset
        listening = self.one.listen(
            Start(StartKind.OFFSET, position), sink, self._open_reader, on_lag=on_lag, queue_events_max=QUEUE_MAX
        )
        try:
            subscription, _ = self.asyncio_loop.run_until_complete(listening)
        except OffsetOutOfRange:
            assert position < oldest
            return
        assert position >= oldest
        self.readers.append((subscription, sink))

    def _open_reader(self, journal: StreamLog, position: int) -> SmallReader:
        return SmallReader(self.one.node.topics.catalogue.name_of, journal, position)

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, READERS_MAX), room=ROOMS)
    def take(self, which: int, room: int) -> None:
        """A reader takes what it was sent, and can take so much more."""
        subscription, sink = self.readers[which % len(self.readers)]
        sink.room = room
        sink.take()
        if sink.is_writable():
            subscription.resume()

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, READERS_MAX), room=ROOMS, on_lag=ON_LAG)
    def come_back(self, which: int, room: int, on_lag: OnLag) -> None:
        """The connection is lost, or was ended; it resumes after the last message."""
        subscription, sink = self.readers.pop(which % len(self.readers))
        subscription.close()
        self._subscribe(sink.next, on_lag, room)

    @rule(turns=st.integers(1, 20))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.one.loop.turn()
            self.one.disk.finish()

    @rule(milliseconds=st.sampled_from([50, 300, TIMEOUT_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.one.loop.advance(milliseconds)

    @precondition(lambda self: self.committed)
    @rule(share=st.floats(0, 1))
    def expire(self, share: float) -> None:
        """Retention of the journal, at any offset, also inside a commit."""
        start = self.journal.log_start_offset
        log_of(self.journal).advance_log_start_offset(start + int(share * (self.journal.high_watermark - start)))

    @rule(name=st.sampled_from(TOPICS))
    def make_anew(self, name: str) -> None:
        """A topic goes, and another one of its name begins."""
        topic = self.one.node.topics.get(name)
        assert topic is not None
        self.deleted.add(topic.topic_id)
        self.asyncio_loop.run_until_complete(self.one.node.topics.delete(topic))
        self.asyncio_loop.run_until_complete(self.one.node.create_event_topic(name))

    # --- what always holds

    @invariant()
    def nobody_got_what_he_should_not(self) -> None:
        if self.failures:
            raise self.failures[0]

    @invariant()
    def who_is_counted_is_there(self) -> None:
        open_count = sum(not subscription.is_closed for subscription, _ in self.readers)
        assert self.one.subscriptions.count_of(self.one.journal.stream()) == open_count

    def teardown(self) -> None:
        try:
            for subscription, sink in self.readers:
                sink.room = ROOMY
                sink.take()
                subscription.resume()
            self.one.settle()
            self.nobody_got_what_he_should_not()
            for subscription, sink in self.readers:
                if not subscription.is_closed:
                    assert subscription.is_live, "a subscriber was forgotten"
                    assert subscription.position >= len(self.committed)
                    # Beyond the head it waits for what it asked for.
                    sink._pass(max(len(self.committed), sink.next))
        finally:
            self.patch.undo()
            self.one.subscriptions.close()
            self.one.close()
            self.asyncio_loop.close()
            shutil.rmtree(self.directory)


@pytest.mark.proves("S3-6", "S3-9", "S3-13", "S3-17", "S3-32")
def test_no_life_of_a_subscriber_of_everything_loses_repeats_or_reorders_an_event() -> None:
    bounds = settings(
        max_examples=examples(60),
        stateful_step_count=40,
        deadline=None,
        # A failure is reported with all its steps at once; shrinking them takes minutes.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(JournalMachine, settings=bounds)
