"""A partition without a node, its log, a loop turn that ends when a test says so, and events to put there."""

from collections.abc import Callable, Iterable
from pathlib import Path

from kwire.broker.batch_validation import Validated, validate
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition, Syncs
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import load
from kwire.config.resources.topic import TopicSettings, settings_for
from kwire.streams.events.event import Event, NewEvent
from kwire.streams.events.publishing import Outcome, Published, Publisher
from kwire.streams.events.reading import EventReader
from kwire.streams.local import LocalLog
from kwire.streams.log import NotReady, StreamLog
from storage.batch.record_batch import BatchHeader, check_batch
from storage.disk.files import Files
from storage.log.settings import LogSettings
from storage.log.syncing import sync_all
from tests.support.batches import UnsyncedFiles, make_log
from tests.support.clock import ManualClock

SOURCE = b"/rooms/lobby"
TOPIC_ID = bytes(range(16))
READS_MAX = 100_000


class SyncNow:
    """Sync rounds that are over before the append returns."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def add(self, partition: Partition) -> None:
        sync = partition.begin_sync()
        if sync is not None:
            (failure,) = sync_all(self._files, (), [sync])
            partition.end_sync(sync, partition.appended_bytes, failure)

    def add_within(self, partition: Partition, delay_ms: int) -> None:
        self.add(partition)


class SyncLater(SyncNow):
    """Sync rounds that a test runs."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.waiting: list[Partition] = []

    def add(self, partition: Partition) -> None:
        self.waiting.append(partition)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for partition in dict.fromkeys(waiting):
            super().add(partition)


def lone_partition(
    directory: Path,
    *,
    files: Files | None = None,
    syncs: Syncs | None = None,
    segment_bytes: int = 1024 * 1024 * 1024,
    **configs: str,
) -> Partition:
    """A partition whose log is in `directory`; `max_message_bytes="10"` sets `max.message.bytes`."""
    files = files or UnsyncedFiles()
    overrides = {name.replace("_", "."): value for name, value in configs.items()}
    settings = settings_for(overrides, load(data_dir=str(directory)))
    log = make_log(directory, files=files, settings=LogSettings(segment_bytes=segment_bytes, index_interval_bytes=100))
    return Partition("lobby", 0, 0, settings, ManualClock(), lambda _: log, syncs or SyncNow(files))


class ReadsHere(ColdReads):
    """A lane that waits for the disk, replaced by the caller itself."""

    def __init__(self) -> None:
        super().__init__(DiskLanes().read)

    def begin(self, warm_up: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        warm_up()
        done(None)

    async def do(self, warm_ups: Iterable[Callable[[], None]]) -> None:
        for warm_up in warm_ups:
            warm_up()


async def validate_now(batch: memoryview, header: BatchHeader, settings: TopicSettings) -> Validated:
    """A worker process, replaced by the caller itself."""
    return validate(batch, header, settings, 0)


def stream_of(partition: Partition, cold_reads: ColdReads | None = None) -> StreamLog:
    """The log of a partition; another object at each call."""
    return LocalLog(cold_reads or ReadsHere(), validate_now, partition, TOPIC_ID)


class Turns:
    """What the event loop does for a publisher: `end` is the end of a turn."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self._calls.append((call, args))

    def end(self) -> None:
        calls, self._calls = self._calls, []
        for call, args in calls:
            call(*args)


class Publishing:
    """A publisher and what it has answered."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.clock = ManualClock()
        self.publisher = Publisher(self.clock, self.turns.call_soon)
        self.outcomes: list[Outcome] = []
        self._logs: dict[Partition, StreamLog] = {}

    def log_of(self, partition: Partition) -> StreamLog:
        """The same object for the same partition, so that calls share a batch."""
        if partition not in self._logs:
            self._logs[partition] = stream_of(partition)
        return self._logs[partition]

    def publish(self, partition: Partition, *events: NewEvent) -> None:
        self.publisher.publish(self.log_of(partition), SOURCE, events, self.note)

    def note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def end_turn(self) -> list[Outcome]:
        """What was answered in this turn."""
        self.turns.end()
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def publish_now(self, partition: Partition, *events: NewEvent) -> Published:
        self.publish(partition, *events)
        (outcome,) = self.end_turn()
        assert isinstance(outcome, Published), outcome
        return outcome


def append(partition: Partition, batch: bytearray | memoryview) -> int:
    """As a Kafka client does; the offset of the first record."""
    view = memoryview(batch)
    return partition.append(view, check_batch(view)).base_offset


def wait_here(wait: NotReady) -> None:
    """Do what a read of a log of `stream_of` waits for."""
    errors: list[BaseException | None] = []
    wait.begin(errors.append)
    assert errors == [None]


def read_all(
    reader: EventReader, count_max: int = 500, bytes_max: int = 1024 * 1024, needs: list[NotReady] | None = None
) -> list[Event]:
    """Every event up to the head, in portions; what needs a thread is done here and noted in `needs`."""
    events: list[Event] = []
    for _ in range(READS_MAX):
        portion = reader.read(count_max, bytes_max)
        if isinstance(portion, NotReady):
            wait_here(portion)
            if needs is not None:
                needs.append(portion)
            continue
        assert len(portion) <= count_max
        if not portion:
            return events
        assert sum(event.size_bytes for event in portion[:-1]) < bytes_max
        assert reader.next_offset > portion[-1].offset
        events += portion
    raise AssertionError("the head is never reached")
