"""Subscriptions in virtual time: loop turns and timers happen when the test says so, and a sink that remembers."""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config.http_api import RoomsConfig
from kwire.streams.events.event import Event, NewEvent, record_of
from kwire.streams.subscriptions import Subscriptions
from kwire.streams.subscriptions.control_messages import Closed, ControlMessage
from kwire.streams.subscriptions.delivery_scheduler import Timer
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.start import FROM_NEWEST, Start
from kwire.streams.subscriptions.subscription import SubscribeOptions, Subscription
from storage.batch.record_batch import build_batch, check_batch
from tests.support.clock import ManualClock
from tests.support.node import QuietNode

TURNS_MAX = 100_000


class _LaterCall:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualLoop:
    """Stands in for the event loop: what is to run soon, and what later."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, int, _LaterCall]] = []
        self._numbers = count()

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        later = _LaterCall(call)
        heapq.heappush(self._later, (self._clock.monotonic() + seconds, next(self._numbers), later))
        return later

    def turn(self) -> bool:
        """One turn of the loop; False if there was nothing to do."""
        calls, self._soon = self._soon, []
        for call in calls:
            call()
        return bool(calls)

    def settle(self) -> int:
        """Turns until nothing is left to do now; how many it took."""
        for turns in range(TURNS_MAX):
            if not self.turn():
                return turns
        raise AssertionError("the work does not end")

    def advance(self, milliseconds: int) -> None:
        """Time passes, and every timer fires when it is due."""
        end = self._clock.monotonic() + milliseconds / 1000
        while self._later and self._later[0][0] <= end + 1e-9:
            due, _, later = heapq.heappop(self._later)
            self._clock.advance(max(round((due - self._clock.monotonic()) * 1000), 0))
            if later.call is not None:
                later.call()
            self.settle()
        self._clock.advance(max(round((end - self._clock.monotonic()) * 1000), 0))

    @property
    def timer_count(self) -> int:
        return sum(1 for _, _, later in self._later if later.call is not None)


class SlowDisk(ColdReads):
    """What waits for the disk waits for `finish`."""

    def __init__(self) -> None:
        super().__init__(DiskLanes().read)
        self.waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def begin(self, warm_up: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.waiting.append((warm_up, done))

    def finish(self, error: BaseException | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for warm_up, done in waiting:
            warm_up()
            done(error)


class RecordingSink:
    """Remembers everything; full after `room` events, until somebody takes them."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.messages: list[Event | ControlMessage] = []
        self.batches: list[EventBatch] = []
        self._held = 0

    def is_writable(self) -> bool:
        return self._held < self.room

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        assert self.is_writable(), "events came although the sink is full"
        assert batch.events, "a batch without events"
        assert batch.events[0].offset >= subscription.position, "the position moves after the events"
        self._held += len(batch.events)
        self.batches.append(batch)
        self.messages += batch.events

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        self.messages.append(message)

    def take(self) -> None:
        """The reader has read everything."""
        self._held = 0

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.messages if isinstance(message, Event)]

    @property
    def control_messages(self) -> list[ControlMessage]:
        return [message for message in self.messages if not isinstance(message, Event)]

    @property
    def closed(self) -> Closed | None:
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, Closed) else None


class Listening:
    """A quiet node with one room, and everything that subscriptions need."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.disk = SlowDisk()
        self.node = QuietNode(directory, new_cold_reads=lambda lane: self.disk)
        self.clock = self.node.clock
        self.loop = ManualLoop(self.clock)
        self.settings = rooms_settings(self.node, **settings)
        self.subscriptions = Subscriptions(self.clock, self.loop.call_soon, self.loop.call_later, self.settings)

    def close(self) -> None:
        self.node.close()

    async def room(self, name: str = "room", **configs: str) -> Topic:
        return await self.node.create(name, 1, **{"kwire_log_sync": "os", **configs})

    async def subscribe(
        self,
        topic: Topic,
        start: Start = FROM_NEWEST,
        sink: RecordingSink | None = None,
        options: SubscribeOptions | None = None,
    ) -> tuple[Subscription, RecordingSink]:
        """A subscription that has begun; nothing has been sent yet."""
        sink = sink or RecordingSink()
        subscription = await self.subscriptions.subscribe(
            topic.name, topic.stream(), start, sink, options or SubscribeOptions()
        )
        subscription.begin()
        return subscription, sink


def rooms_settings(node: QuietNode, **settings: object) -> RoomsConfig:
    return node.config.rooms._replace(**settings)  # type: ignore[arg-type]


def publish(partition: Partition, *types: str, now_ms: int = 1_700_000_000_000) -> int:
    """One batch with an event of each type; the offset of the first."""
    records = [
        record_of(NewEvent(kind, b"{}"), b"/rooms/room", f"evt_{kind}_{number}", now_ms)
        for number, kind in enumerate(types)
    ]
    batch = memoryview(build_batch(records))
    return partition.append(batch, check_batch(batch)).base_offset


def publish_many(partition: Partition, number: int, kind: str = "message") -> int:
    return publish(partition, *[kind] * number)


def offsets_of(events: Sequence[object]) -> list[int]:
    return [event.offset for event in events if isinstance(event, Event)]


async def settled(*, turns: int = 20) -> None:
    """Let the real loop have some turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
