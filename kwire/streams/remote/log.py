"""RemoteLog: implements StreamLog for a partition of a Kafka cluster.

A log that is watched is *followed*: a `Fetcher` keeps it in the fetch session with its leader, and `position` is the
offset after the last batch that arrived so. Other logs cost nothing until they are used. Their bounds are those that
this process knows; `ready` asks for the current ones.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kwire.concurrency.disk_lanes import Lane
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import Appended, Bounds, Completed, NotReady, StreamLog, StreamRead, Usage, Watcher
from kwire.streams.remote.batch_cache import LogRuns
from kwire.streams.remote.leader_requests import EARLIEST, LATEST, NO_OFFSET, READ_COMMITTED, READ_UNCOMMITTED
from kwire.streams.remote.partition_queue import PartitionQueue, State
from kwire.streams.remote.reads import RemoteRead
from storage.batch.record_batch import BatchHeader
from storage.log.transactions import AbortedTransaction

if TYPE_CHECKING:
    from kwire.streams.remote.logs import RemoteLogs

# A read is repeated at most this often. More would mean that what was fetched is evicted before it is read.
WAITS_MAX: Final = 20
# How long events that have arrived wait for the answer to a Produce of this process.
HOLD_SECONDS_MAX: Final = 0.25

_NO_RECORDS: Final = memoryview(b"")
_NONE_ABORTED: Final[Sequence[AbortedTransaction]] = ()


class _NextFetch(NotReady):
    """A read at the head of a followed log, whose records are on their way."""

    __slots__ = ("_log",)

    def __init__(self, log: "RemoteLog") -> None:
        self._log = log

    def begin(self, completed: Completed) -> None:
        self._log.await_fetch(completed)


class InLane(NotReady):
    """Work for the threads of a lane."""

    __slots__ = ("_lane", "_work")

    def __init__(self, lane: Lane, work: Callable[[], None]) -> None:
        self._lane = lane
        self._work = work

    def begin(self, completed: Completed) -> None:
        self._lane.begin(self._work, lambda _, error: completed(error))


class RemoteLog(StreamLog):
    """A partition of a cluster. Made by `RemoteLogs`."""

    __slots__ = (
        "_asking",
        "_awaiting_fetch",
        "_committed_end",
        "_held_end",
        "_high_watermark",
        "_hold_timer",
        "_is_gone",
        "_is_holding",
        "_last_timestamp_ms",
        "_logs",
        "_notified_end",
        "_size_bytes",
        "_start",
        "_watchers",
        "append_refusal",
        "incarnation",
        "is_being_deleted",
        "is_known",
        "partition",
        "position",
        "queue",
        "runs",
        "topic",
        "topic_id",
        "uncommitted_runs",
    )

    def __init__(self, logs: "RemoteLogs", topic: str, topic_id: bytes, partition: int, queue: PartitionQueue) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.incarnation = incarnation_of(topic_id)
        self.queue = queue
        self.runs = LogRuns()
        self.uncommitted_runs = LogRuns()
        # The offset that the fetcher reads next; None if the log is not in a fetch session.
        self.position: int | None = None
        # Whether the bounds are known.
        self.is_known = False
        self._logs = logs
        self._start = self._committed_end = self._high_watermark = 0
        self._notified_end = 0
        self._size_bytes = 0
        self._last_timestamp_ms: int | None = None
        self._is_gone = False
        # Set by the process that deletes the topic, so that it acknowledges no append that would be deleted.
        self.is_being_deleted = False
        # Why `append` is refused, for logs that only transactions may write to.
        self.append_refusal: KafkaError | None = None
        self._watchers: set[Watcher] = set()
        self._awaiting_fetch: list[Completed] = []
        self._asking: asyncio.Task[None] | None = None
        # The committed end that a Fetch has reported while a batch of this process waited for its answer.
        self._held_end = 0
        self._is_holding = True
        self._hold_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"RemoteLog({self.topic}-{self.partition})"

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    @property
    def is_closing(self) -> bool:
        return self._is_gone or self.is_being_deleted

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    @property
    def max_batch_bytes(self) -> int:
        return self.queue.max_batch_bytes

    def check(self) -> None:
        """Raise KafkaError if the topic was deleted."""
        if self._is_gone:
            raise deleted(self.topic)

    # --- bounds

    async def ready(self) -> None:
        self.check()
        if self.position is None or not self.is_known:
            await self.ask_bounds()

    async def ask_bounds(self, *, is_exact: bool = False) -> None:
        """Ask the cluster for the bounds. Callers at the same time share the requests.

        With `is_exact` the ends may also fall, which happens if a new leader has lost records.
        """
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_bounds(is_exact))
            self._asking.add_done_callback(ignore_outcome)
        await asyncio.shield(self._asking)

    async def _ask_bounds(self, is_exact: bool) -> None:
        find = self._logs.requests.find_offset
        try:
            is_first = not self.is_known
            (start, _), (committed_end, _), (high_watermark, _) = await asyncio.gather(
                find(self, EARLIEST, READ_UNCOMMITTED),
                find(self, LATEST, READ_COMMITTED),
                find(self, LATEST, READ_UNCOMMITTED),
            )
            if is_exact:
                self._start, self._committed_end, self._high_watermark = start, committed_end, high_watermark
            if is_first:
                usage = await self._logs.usage.ask(self)
                self._size_bytes, self._last_timestamp_ms = usage
                self._notified_end = committed_end
            self.is_known = True
            self.learn(start, committed_end, high_watermark)
        finally:
            self._asking = None

    def bounds(self) -> Bounds:
        self.check()
        return Bounds(self._start, self._committed_end, self._high_watermark)

    @property
    def start_offset(self) -> int:
        return self._start

    @property
    def committed_end(self) -> int:
        return self._committed_end

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def usage(self) -> Usage:
        self.check()
        return Usage(self._size_bytes, self._last_timestamp_ms)

    def learn(self, start: int, committed_end: int, high_watermark: int) -> None:
        """A response has these bounds. Responses may arrive out of order, so the bounds only rise."""
        self._start = max(self._start, start)
        self._high_watermark = max(self._high_watermark, high_watermark, committed_end)
        self._committed_end = max(self._committed_end, committed_end)
        self._notify()

    def follow(self, start: int, committed_end: int, high_watermark: int) -> None:
        """The fetcher has these bounds. A Fetch may show a batch of this process before the answer to its Produce has
        arrived. Its publisher gets the answer before anybody gets the events, so the end rises with the answer.
        """
        if committed_end <= self._committed_end or self.queue.state is not State.SENT or not self._is_holding:
            self.learn(start, committed_end, high_watermark)
            return
        self._held_end = max(self._held_end, committed_end)
        if self._hold_timer is None:
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_SECONDS_MAX, self._give_up_hold)
        self.learn(start, self._committed_end, high_watermark)

    def _give_up_hold(self) -> None:
        """The broker does not answer. The events of others are not held any longer."""
        self.release()
        self._is_holding = False

    def release(self) -> None:
        """A batch of this process was answered, or its answer is not waited for any longer."""
        self._is_holding = True
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
            self._committed_end = max(self._committed_end, self._held_end)
            self._notify()

    # --- records

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        if self.is_closing:
            appended(deleted(self.topic))
        elif self.append_refusal is not None:
            appended(self.append_refusal)
        elif len(batch) > self.queue.max_batch_bytes:
            self._logs.check_max_batch_bytes(self.topic)
            appended(
                KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"topic {self.topic!r}: {len(batch)} bytes are more than max.message.bytes={self.max_batch_bytes}",
                )
            )
        else:
            self._logs.producer.append(self, batch, header, appended)

    def stored(self, base_offset: int, record_count: int, size_bytes: int, timestamp_ms: int) -> None:
        """The cluster has committed a batch of this process."""
        self._add_usage(size_bytes, timestamp_ms)
        # Without other records in between, and without open transactions, these can be read.
        if self.is_known and self._committed_end == self._high_watermark == base_offset:
            self._committed_end = base_offset + record_count
        self._high_watermark = max(self._high_watermark, base_offset + record_count)
        self._notify()

    def fetched(self, size_bytes: int, timestamp_ms: int, next_offset: int) -> None:
        """The fetcher has put batches into the cache."""
        self._add_usage(size_bytes if next_offset > self._high_watermark else 0, timestamp_ms)
        self.position = next_offset

    def _add_usage(self, size_bytes: int, timestamp_ms: int) -> None:
        self._size_bytes += size_bytes
        if timestamp_ms > (self._last_timestamp_ms or -1):
            self._last_timestamp_ms = timestamp_ms

    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        return self._read(offset, max_bytes, waits, self.runs, self._committed_end, is_committed=True)

    def read_uncommitted(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        found = self._read(offset, max_bytes, waits, self.uncommitted_runs, self._high_watermark, is_committed=False)
        return found if isinstance(found, NotReady) else found._replace(aborted=_NONE_ABORTED)

    def _read(
        self, offset: int, max_bytes: int, waits: int, runs: LogRuns, end: int, *, is_committed: bool
    ) -> StreamRead | NotReady:
        self.check()
        if offset < self._start:
            raise OffsetOutOfRange(offset, self._start, end - 1)
        if offset >= end:
            return StreamRead(_NO_RECORDS, offset, _NONE_ABORTED)
        found = self._logs.cache.read(runs, offset, max_bytes)
        if isinstance(found, StreamRead):
            return found
        if found >= end:
            return StreamRead(_NO_RECORDS, found, _NONE_ABORTED)
        if waits > WAITS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.queue.what}: offset {offset} cannot be read in time")
        if is_committed and found == self.position and self._logs.followers.is_fetching(self):
            return _NextFetch(self)
        return RemoteRead(self._logs.reads, self, found, max_bytes, is_committed)

    async def offset_for_time(self, timestamp_ms: int) -> int:
        await self.ask_bounds()
        # The constants of the request are negative times.
        offset, _ = await self._logs.requests.find_offset(self, max(0, timestamp_ms), READ_COMMITTED)
        return self._committed_end if offset == NO_OFFSET else max(offset, self._start)

    def in_thread(self, work: Callable[[], None]) -> NotReady:
        return InLane(self._logs.lane, work)

    # --- signals

    def watch(self, watcher: Watcher) -> None:
        if not self._watchers and not self._is_gone:
            self._notified_end = self._committed_end
            self._logs.followers.add(self)
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            if not self._watchers:
                self._logs.followers.remove(self)

    def await_fetch(self, completed: Completed) -> None:
        """Call `completed` after the next response of the fetcher for this log, or when there will be none."""
        self._awaiting_fetch.append(completed)

    def end_waits(self) -> None:
        """Let the reads continue that wait for the fetcher."""
        waiting, self._awaiting_fetch = self._awaiting_fetch, []
        for completed in waiting:
            completed(None)

    def _notify(self) -> None:
        """Call the watchers if more can be read. For a followed log that is what has arrived."""
        end = self._committed_end
        if self.position is not None and self._logs.followers.is_fetching(self):
            end = min(end, self.position)
        if end > self._notified_end:
            self._notified_end = end
            self._call_watchers()

    def _call_watchers(self) -> None:
        watchers = self._watchers
        for watcher in tuple(watchers):
            if watcher in watchers:
                watcher(self)

    def delete(self) -> None:
        """The topic was deleted."""
        if self._is_gone:
            return
        self._is_gone = True
        self._logs.cache.clear(self.runs)
        self._logs.cache.clear(self.uncommitted_runs)
        self._logs.followers.remove(self)
        self.queue.fail(deleted(self.topic))
        self.end_waits()
        self._call_watchers()


def incarnation_of(topic_id: bytes) -> str:
    """Return a topic id in the form that Kafka's tools show."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def ignore_outcome(task: "asyncio.Task[None]") -> None:
    """All callers may have been cancelled. Then nobody looks at the error of their task."""
    if not task.cancelled():
        task.exception()


def deleted(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {topic!r} is deleted")
