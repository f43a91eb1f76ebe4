"""Random lives of subscriptions against a model that knows only what was published.

Publishes, transactions that are open, committed or aborted, slow readers, readers that resume at any reported offset,
retention, damage, a slow disk, timers, every start and every rule for lag: each gap is reported as a Gap, no duplicate,
nothing out of order, nothing that is not committed, and no subscriber is forgotten.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

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

from kwire.errors import OffsetOutOfRange
from kwire.streams.events.event import Event
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NotReady
from kwire.streams.subscriptions.control_messages import (
    BROADCAST_FAILED,
    LAGGED,
    CaughtUp,
    Checkpoint,
    Closed,
    ControlMessage,
    Gap,
    Lagging,
)
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.start import Start, StartKind
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions, Subscription
from storage.log.quarantine import Quarantine
from tests.support.effort import examples
from tests.support.partition_log import log_of
from tests.support.subscribing import Listening, RecordingSink, publish
from tests.support.transactions import TransactionalProducer

TYPES = ("a", "b", "c")
PRODUCERS = (1, 2, 3)
QUEUE_MAX = 12
TIMEOUT_MS = 1000
READERS_MAX = 6
ROOMY = 1_000_000
MACHINE = "kwire.streams.subscriptions"


# So small that rounds take several turns, and history several batches.
EVENTS_PER_READ = 7
UNITS_PER_TURN = 8


class ColdReader(EventReader):
    """Reads small batches. Every other read has to wait for the disk while it is cold."""

    __slots__ = ("_is_warm",)
    is_cold: ClassVar[bool] = False

    def read(self, *_: int) -> list[Event] | NotReady:
        if ColdReader.is_cold and not getattr(self, "_is_warm", False):
            self._is_warm = True
            return self._log.in_thread(lambda: None)
        self._is_warm = False
        return super().read(EVENTS_PER_READ)


class CheckingSink(RecordingSink):
    """Judges each message as it comes. `next` is the first offset that it knows nothing of yet."""

    def __init__(self, machine: "SubscriptionMachine", room: int, options: SubscribeOptions) -> None:
        super().__init__(room)
        self.machine = machine
        self.options = options
        self.next = 0
        self.caught_up_at_least = 0
        self.is_lag_told = False
        self.is_over = False
        # Where it may come back: the offsets of events and control messages, plus one.
        self.resume_offsets: list[int] = []

    def begin_at(self, subscription: Subscription) -> None:
        self.next = subscription.facts.next_offset
        self.caught_up_at_least = self.machine.partition.last_stable_offset
        self.resume_offsets = [self.next]

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        # An exception of a sink ends its subscription and goes no further, so it is recorded for the machine.
        try:
            self._judge_events(subscription, batch)
        except AssertionError as error:
            self.machine.failures.append(error)
            raise

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        try:
            self._judge_control(subscription, message)
        except AssertionError as error:
            self.machine.failures.append(error)
            raise

    def _judge_events(self, subscription: Subscription, batch: EventBatch) -> None:
        super().send_events(subscription, batch)
        assert not self.is_over
        for event in batch.events:
            assert event.offset >= self.next, "a duplicate, or out of order"
            self._pass(event.offset)
            assert event.offset < self.machine.decided_end, "its transaction is open, or one before it"
            assert self.machine.published[event.offset] == event.type
            assert self.options.types is None or event.type in self.options.types
            self.next = event.offset + 1
            self.resume_offsets.append(self.next)

    def _judge_control(self, subscription: Subscription, message: ControlMessage) -> None:
        super().send_control(subscription, message)
        assert not self.is_over, "something came after the end"
        if isinstance(message, Gap):
            assert self.is_writable(), "a gap is sent to a writable sink only"
            self._judge_gap(message)
        else:
            self._pass(message.offset + 1)
            self.next = max(self.next, message.offset + 1)
            assert message.offset == self.next - 1, "a message lies behind what was delivered"
        if isinstance(message, CaughtUp):
            assert message.offset + 1 >= self.caught_up_at_least
            self.is_lag_told = False
        elif isinstance(message, Lagging):
            self.is_lag_told = True
        elif isinstance(message, Closed):
            self.is_over = True
            self._judge_end(message)
        else:
            assert isinstance(message, Gap | Checkpoint)
        self.resume_offsets.append(self.next)

    def _pass(self, upto: int) -> None:
        """Nothing between is left out unless the reader does not want it, or there is no event."""
        for offset in range(self.next, min(upto, len(self.machine.published))):
            kind = self.machine.published[offset]
            assert offset < self.machine.decided_end, f"{offset} may still become an event"
            if kind is not None:
                assert self.options.types is not None, f"{offset} is missing"
                assert kind not in self.options.types, f"{offset} is missing"

    def _judge_gap(self, gap: Gap) -> None:
        assert gap.from_offset <= gap.to_offset
        self._pass(gap.from_offset)
        assert gap.from_offset >= self.next
        self.next = gap.to_offset + 1
        if gap.reason == "damaged":
            assert all(offset in self.machine.damaged for offset in range(gap.from_offset, gap.to_offset + 1))
        elif gap.reason == "retention":
            assert self.options.on_lag is not OnLag.TERMINATE
            assert gap.to_offset < self.machine.partition.log_start_offset
        else:
            assert gap.reason == "lagged"
            assert self.options.on_lag is OnLag.DROP
            assert self.is_lag_told
            self.is_lag_told = False

    def _judge_end(self, closed: Closed) -> None:
        if closed.code in (LAGGED, BROADCAST_FAILED):
            assert self.options.on_lag is OnLag.TERMINATE
            assert self.is_lag_told, "cut without notice"
        elif closed.code == "OffsetOutOfRange":
            assert self.options.on_lag is OnLag.TERMINATE
            assert self.next < self.machine.partition.log_start_offset
        elif not self.machine.is_torn_down:
            assert closed.code == "RoomNotFound"
            assert self.machine.partition.is_forgotten


BATCHES = st.lists(st.sampled_from(TYPES), min_size=1, max_size=8)
# How many events a sink takes before it is full.
ROOMS = st.sampled_from([0, 1, 3, 10, 10, ROOMY])
STARTS = st.one_of(
    st.sampled_from([Start(StartKind.NEWEST), Start(StartKind.OLDEST)]),
    st.integers(0, 100).map(Start.at),
    st.integers(1, 60).map(Start.back),
    st.integers(0, 60).map(lambda seconds: Start.at_time(1_700_000_000_000 + 1000 * seconds)),
)
OPTIONS = st.builds(
    SubscribeOptions,
    on_lag=st.sampled_from(OnLag),
    queue_events_max=st.integers(1, QUEUE_MAX),
    checkpoint_events=st.integers(1, 30),
    checkpoint_ms=st.integers(100, 3000),
    types=st.none() | st.frozensets(st.sampled_from(TYPES), min_size=1),
    epoch=st.none(),
)


class SubscriptionMachine(RuleBasedStateMachine):
    """The real machine on a real log, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.asyncio_loop = asyncio.new_event_loop()
        self.listening = Listening(Path(self.directory), broadcast_timeout_ms=TIMEOUT_MS, recent_events_max=25)
        self.readers: list[tuple[Subscription, CheckingSink]] = []
        self.is_torn_down = False
        self.failures: list[AssertionError] = []
        ColdReader.is_cold = False
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(f"{MACHINE}.live_feed.EVENTS_PER_READ", EVENTS_PER_READ)
        self.patch.setattr(f"{MACHINE}.delivery_scheduler.LIVE_UNITS_PER_ITERATION", UNITS_PER_TURN)
        self.patch.setattr(f"{MACHINE}.delivery_scheduler.HISTORY_UNITS_PER_ITERATION", UNITS_PER_TURN)

    @initialize(ring=st.sampled_from([-1, -1, 20]), readers=st.lists(st.tuples(STARTS, OPTIONS, ROOMS), max_size=4))
    def open(self, ring: int, readers: list[tuple[Start, SubscribeOptions, int]]) -> None:
        self._make_room(ring)
        for start, options, room in readers:
            self._subscribe(start, CheckingSink(self, room, options), True)

    def _make_room(self, ring: int) -> None:
        self.ring = ring
        configs = {"kwire_retention_messages": str(ring)} if ring > 0 else {}
        self.topic = self.asyncio_loop.run_until_complete(self.listening.room(**configs))
        self.partition = self.topic.partitions[0]
        # By offset; None where there is no event, of a marker or what was aborted.
        self.published: list[str | None] = []
        self.producers = {number: TransactionalProducer(self.partition, number) for number in PRODUCERS}
        # The offsets that each of them has in its open transaction.
        self.undecided: dict[int, list[int]] = {}
        self.batches: list[Quarantine] = []
        self.damaged: set[int] = set()

    # --- what happens

    @rule(batches=st.lists(BATCHES, min_size=1, max_size=6), turns=st.sampled_from([0, 1, 1, 50]))
    def publish(self, batches: list[list[str]], turns: int) -> None:
        """Some batches, each followed by some turns of the loop."""
        for types in batches:
            self._publish(types)
            for _ in range(turns):
                self.listening.loop.turn()

    def _publish(self, types: list[str]) -> None:
        self._append(types, lambda now_ms: publish(self.partition, *types, now_ms=now_ms))

    def _append(self, kinds: Sequence[str | None], append: Callable[[int], int]) -> None:
        """`append` gets the time of the batch, and returns its offset."""
        log, start = log_of(self.partition), len(self.published)
        position = log.size_bytes
        # Recorded first: subscribers may receive the batch during the append.
        self.published += kinds
        assert append(1_700_000_000_000 + 1000 * start) == start
        self.batches.append(
            Quarantine(0, position, log.size_bytes - position, start, len(self.published), "harmed by the test")
        )

    @property
    def decided_end(self) -> int:
        """Behind what can be read."""
        return min([len(self.published), *(offsets[0] for offsets in self.undecided.values())])

    @rule(number=st.sampled_from(PRODUCERS), types=BATCHES)
    def publish_in_transaction(self, number: int, types: list[str]) -> None:
        start = len(self.published)
        self.undecided.setdefault(number, []).extend(range(start, start + len(types)))
        self._append(types, lambda now_ms: self.producers[number].publish(*types, now_ms=now_ms))

    @rule(numbers=st.sets(st.sampled_from(PRODUCERS), min_size=1), is_commit=st.booleans())
    def end_transactions(self, numbers: set[int], is_commit: bool) -> None:
        """A marker may also come for a producer without a transaction."""
        for number in sorted(numbers):
            self._end_transaction(number, is_commit)

    def _end_transaction(self, number: int, is_commit: bool) -> None:
        for offset in self.undecided.pop(number, ()):
            if not is_commit:
                self.published[offset] = None
        producer = self.producers[number]
        self._append([None], lambda now_ms: producer.commit() if is_commit else producer.abort())

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(start=STARTS, options=OPTIONS, room=ROOMS, begins=st.booleans())
    def subscribe(self, start: Start, options: SubscribeOptions, room: int, begins: bool) -> None:
        self._subscribe(start, CheckingSink(self, room, options), begins)

    def _subscribe(self, start: Start, sink: CheckingSink, begins: bool) -> None:
        oldest = self.partition.log_start_offset
        subscribing = self.listening.subscriptions.subscribe(
            "room", self.topic.stream(), start, sink, sink.options, ColdReader
        )
        try:
            subscription = self.asyncio_loop.run_until_complete(subscribing)
        except OffsetOutOfRange:
            assert start.kind is StartKind.OFFSET
            assert start.value < oldest
            return
        assert not sink.messages, "something came before the answer"
        sink.begin_at(subscription)
        if start.kind is StartKind.OFFSET:
            assert sink.next == start.value
        if begins:
            subscription.begin()
        self.readers.append((subscription, sink))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), room=ROOMS, begins=st.booleans())
    def reconnect(self, data: st.DataObject, room: int, begins: bool) -> None:
        """Resume at any reported offset, not only the last one."""
        subscription, old = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        subscription.close()
        offset = data.draw(st.sampled_from(old.resume_offsets))
        start = Start.at(offset) if offset else Start(StartKind.OLDEST)
        self._subscribe(start, CheckingSink(self, room, old.options), begins)

    @precondition(lambda self: self.readers)
    @rule(numbers=st.sets(st.integers(0, READERS_MAX - 1), min_size=1), is_notified=st.booleans())
    def take(self, numbers: set[int], is_notified: bool) -> None:
        """Some sinks become writable, with or without a call of `resume`."""
        for number, (subscription, sink) in enumerate(self.readers):
            if number in numbers:
                sink.take()
                subscription.begin()
                if is_notified:
                    subscription.resume()

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), room=ROOMS)
    def change_pace(self, data: st.DataObject, room: int) -> None:
        _, sink = data.draw(st.sampled_from(self.readers))
        sink.room = room

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        subscription, sink = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        subscription.close()
        sink.is_over = True

    @rule()
    def settle(self) -> None:
        self.listening.loop.settle()
        for subscription, sink in self.readers:
            if subscription.is_live and not subscription.is_closed and not self.listening.disk.waiting:
                queue_max = sink.options.queue_events_max or 0
                behind = self.decided_end - subscription.position
                # A subscription that drops waits only for its sink.
                assert subscription._is_dropping or behind <= queue_max, "it is live and further behind than it may be"

    @rule(milliseconds=st.sampled_from([10, 200, 600, 1500, 5000]))
    def wait(self, milliseconds: int) -> None:
        self.listening.loop.advance(milliseconds)

    @rule(is_cold=st.booleans())
    def change_disk(self, is_cold: bool) -> None:
        """What waits is done, and what comes may have to wait."""
        self.listening.disk.finish()
        ColdReader.is_cold = is_cold

    @precondition(lambda self: len(self.published) > 20)
    @rule(share=st.floats(0.3, 1))
    def retain(self, share: float) -> None:
        """Retention moves the log start."""
        log = log_of(self.partition)
        kept_from = int(share * len(self.published))
        log.log_start_offset = max(log.log_start_offset, kept_from)

    @precondition(lambda self: len(self.batches) > 10)
    @rule(data=st.data())
    def harm(self, data: st.DataObject) -> None:
        """A scrub finds damage."""
        one = data.draw(st.sampled_from(self.batches))
        self.batches.remove(one)
        self.damaged |= set(range(one.start_offset, one.end_offset))
        log_of(self.partition)._set_quarantined((*self.partition.quarantined, one))

    @precondition(lambda self: len(self.published) > 150)
    @rule()
    def delete(self) -> None:
        """The room is deleted, all subscriptions end, and a new room of the same name is created."""
        self.asyncio_loop.run_until_complete(self.listening.node.topics.delete(self.topic))
        self._serve_everybody()
        for subscription, sink in self.readers:
            assert subscription.is_closed
            assert sink.closed is not None
        assert self.listening.subscriptions.feed_count == 0
        self.readers.clear()
        self._make_room(self.ring)

    # --- what always holds

    @invariant()
    def nobody_got_what_he_should_not(self) -> None:
        if self.failures:
            raise self.failures[0]

    @invariant()
    def who_is_counted_is_there(self) -> None:
        if hasattr(self, "partition"):
            open_count = sum(not subscription.is_closed for subscription, _ in self.readers)
            assert self.listening.subscriptions.count_of(self.topic.stream()) == open_count

    def _serve_everybody(self) -> None:
        ColdReader.is_cold = False
        for subscription, sink in self.readers:
            sink.room = ROOMY
            sink.take()
            subscription.begin()
            subscription.resume()
        # A step that was waiting for the disk may be followed by another one.
        for _ in range(3):
            self.listening.loop.settle()
            self.listening.disk.finish()
        self.listening.loop.settle()

    def teardown(self) -> None:
        try:
            if hasattr(self, "partition"):
                self._serve_everybody()
                for subscription, sink in self.readers:
                    if not subscription.is_closed:
                        assert subscription.is_live, "a subscriber was forgotten"
                        assert subscription.position >= self.decided_end
                        sink._pass(self.decided_end)
                for number in tuple(self.undecided):
                    self._end_transaction(number, True)
                self._serve_everybody()
                for subscription, sink in self.readers:
                    if not subscription.is_closed:
                        assert subscription.position >= len(self.published)
                        sink._pass(len(self.published))
                self.listening.loop.advance(10_000)
                self.nobody_got_what_he_should_not()
                assert self.listening.loop.timer_count == 0, "a timer runs without need"
        finally:
            self.is_torn_down = True
            self.patch.undo()
            self.listening.subscriptions.close()
            self.listening.close()
            self.asyncio_loop.close()
            shutil.rmtree(self.directory)


@pytest.mark.proves("S0-26", "S0-27", "S0-28", "S3-13", "S3-32")
def test_no_life_of_a_subscription_loses_repeats_or_reorders_an_event() -> None:
    bounds = settings(
        max_examples=examples(120),
        stateful_step_count=50,
        deadline=None,
        # A failure is reported with all its steps at once; shrinking them takes minutes.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(SubscriptionMachine, settings=bounds)
