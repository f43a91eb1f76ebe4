"""A master on a metadata store in memory, in virtual time, with shorthands for its requests."""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from kwire.cluster.core.control import (
    BeginRecovery,
    CloseSegment,
    CreateStream,
    Describe,
    Described,
    Granted,
    Heartbeat,
    OpenSegment,
    SegmentChanged,
    SegmentRecord,
    StoreAccepted,
    StoreHeartbeat,
    StreamCreated,
)
from kwire.cluster.core.messages import Copied, Copy, Incarnation, Message, SegmentId
from kwire.cluster.master import Master, MasterSettings
from kwire.cluster.master.decisions import Answer
from kwire.cluster.master.master import Outcome
from kwire.cluster.master.requests import Request
from kwire.cluster.master.state import Metadata, SegmentEntry, StreamEntry
from tests.metastore.naive import NaiveMetaStore
from tests.support.clock import ManualClock

T = TypeVar("T")

GIB = 1024**3
ROUNDS_MAX = 100
SETTINGS = MasterSettings(
    lease_ttl_ms=1_000,
    candidate_ttl_ms=1_000,
    store_timeout_ms=1_000,
    store_replace_ms=5_000,
    copy_timeout_ms=1_000,
    copies_max=4,
    learner_wait_ms=500,
    free_bytes_min=1,
)


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for anything outside."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waits")


def new_store() -> NaiveMetaStore:
    return NaiveMetaStore(ManualClock(), kept_changes_max=100)


class World:
    """A cluster as its master sees it. `now` only changes when a test says so."""

    def __init__(self, stores: Iterable[str] = "ABC", settings: MasterSettings = SETTINGS) -> None:
        self.metastore = new_store()
        self.metadata = Metadata(self.metastore.get)
        self.settings = settings
        self.now = 1_000_000
        self.incarnations: dict[str, Incarnation] = {}
        self.master = self.new_master("master")
        for store in stores:
            assert isinstance(self.hear(store), StoreAccepted)

    def new_master(self, name: str) -> Master:
        """Let a new master take over. It has no memory."""
        self.master = Master(self.metastore, name, self.settings)
        finish(self.master.start(self.now))
        return self.master

    def outcome(self, request: Request, choice: int = 0) -> Outcome:
        return finish(self.master.handle(request, self.now, choice))

    def ask(self, request: Request, choice: int = 0) -> Answer | None:
        return self.outcome(request, choice).answer

    # --- stores

    def heartbeat_of(self, store: str, **fields: Any) -> StoreHeartbeat:
        incarnation = self.incarnations.setdefault(store, Incarnation(100 + len(self.incarnations), 1))
        return StoreHeartbeat(store, incarnation, **{"free_bytes": GIB, **fields})

    def hear(self, store: str, **fields: Any) -> Answer | None:
        return self.ask(self.heartbeat_of(store, **fields))

    def pass_time(self, milliseconds: int, alive: Iterable[str] = ()) -> None:
        """Let time pass in steps in which no live store is missed."""
        step = self.settings.store_timeout_ms // 2
        while milliseconds > 0:
            self.now += min(step, milliseconds)
            milliseconds -= step
            for store in alive:
                self.hear(store)

    # --- copies of sealed segments

    def tick(self) -> tuple[Message, ...]:
        return finish(self.master.tick(self.now)).messages

    def ordered_copies(self) -> set[tuple[str, int]]:
        """The stores and segment numbers of the copies that a round of repairs orders."""
        return {(one.target, one.body.segment.number) for one in self.tick() if isinstance(one.body, Copy)}

    def copied(
        self, store: str, number: int, stream: str = "s", digest: int = 7, end: int | None = None, removals: int = 0
    ) -> Outcome:
        end = end or self.segment(number, stream).record.end_index
        assert end is not None
        report = Copied(SegmentId(stream, number), end, self.incarnations[store], digest, removals=removals)
        return finish(self.master.handle_copied(store, report, self.now))

    def verify_all(self, alive: Iterable[str]) -> None:
        """Let the live stores make all copies that are ordered, until no more are."""
        for _ in range(ROUNDS_MAX):
            messages = [one for one in self.tick() if one.target in alive]
            for message in messages:
                if isinstance(message.body, Copy):
                    body = message.body
                    self.copied(message.target, body.segment.number, body.segment.stream, removals=body.removals)
            if not messages:
                return
        raise AssertionError("the repair does not end")

    # --- streams

    def create(self, stream: str = "s", replicas: int = 3, write_quorum: int = 2, whole_log: bool = False) -> None:
        created = self.ask(CreateStream(stream, replicas, write_quorum, whole_log))
        assert created == StreamCreated(stream)

    def elect(self, client: str = "c", stream: str = "s") -> int:
        granted = self.ask(Heartbeat(stream, client, 0))
        assert isinstance(granted, Granted), granted
        return granted.epoch

    def open(self, epoch: int, number: int, stream: str = "s", avoid: tuple[str, ...] = ()) -> SegmentRecord:
        return record_of(self.ask(OpenSegment(stream, epoch, number, avoid)))

    def close(self, epoch: int, number: int, end_index: int, stream: str = "s") -> SegmentRecord:
        return record_of(self.ask(CloseSegment(stream, epoch, number, end_index)))

    def recover(self, epoch: int, number: int, stream: str = "s") -> SegmentRecord:
        return record_of(self.ask(BeginRecovery(stream, epoch, number)))

    def records(self, stream: str = "s") -> tuple[SegmentRecord, ...]:
        described = self.ask(Describe(stream))
        assert isinstance(described, Described)
        return described.segments

    def stream(self, stream: str = "s") -> StreamEntry:
        entry = self.metadata.stream(stream)
        assert entry is not None
        return entry.value

    def segment(self, number: int, stream: str = "s") -> SegmentEntry:
        entry = self.metadata.segment(SegmentId(stream, number))
        assert entry is not None
        return entry.value


def record_of(answer: Answer | None) -> SegmentRecord:
    assert isinstance(answer, SegmentChanged), answer
    return answer.record


def names(record: SegmentRecord) -> set[str]:
    return {one.store for one in record.copy_set}
