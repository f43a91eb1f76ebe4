"""A StreamLog in memory, as plain as can be: a list of batches, searched from its beginning.

It is the twin that other implementations are compared with. Tests decide when appended records are committed
(`is_held`), whether reads have to wait (`is_cold`), and write transactions.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import Appended, Bounds, Completed, NotReady, StreamLog, StreamRead, Usage, Watcher
from storage.batch.markers import build_marker
from storage.batch.record_batch import BatchHeader, parse_header, read_records
from storage.log.transactions import AbortedTransaction

UNFOLDED_BYTES_MAX = 64 * 1024 * 1024
BASE_OFFSET_BYTES = 8


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes


class _Waiting(NamedTuple):
    base_offset: int
    end_offset: int
    appended: Appended


class _Soon(NotReady):
    """Work that is done in the next turn of the event loop."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def begin(self, completed: Completed) -> None:
        asyncio.get_running_loop().call_soon(self._run, completed)

    def _run(self, completed: Completed) -> None:
        try:
            self._work()
        except Exception as error:
            completed(error)
        else:
            completed(None)


class MemoryLog(StreamLog):
    def __init__(self, topic: str, partition: int, incarnation: str, max_batch_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.incarnation = incarnation
        self.is_held = False
        self.is_cold = False
        self._max_batch_bytes = max_batch_bytes
        self._is_gone = False
        self._batches: list[_Batch] = []
        self._start = 0
        self._end = 0
        self._durable_end = 0
        self._waiting: list[_Waiting] = []
        self._open: dict[int, int] = {}
        # Transactions that have ended: producer, first offset, offset of the marker, whether it was aborted.
        self._ended: list[tuple[int, int, int, bool]] = []
        self._watchers: list[Watcher] = []

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    @property
    def is_closing(self) -> bool:
        return self._is_gone

    @property
    def max_batch_bytes(self) -> int:
        return self._max_batch_bytes

    async def ready(self) -> None:
        self._check()

    def bounds(self) -> Bounds:
        self._check()
        return Bounds(self._start, self.committed_end, self._end)

    @property
    def start_offset(self) -> int:
        return self._start

    @property
    def committed_end(self) -> int:
        undecided = [first for _, first, marker, _ in self._ended if marker >= self._durable_end]
        return min([self._durable_end, *self._open.values(), *undecided])

    @property
    def high_watermark(self) -> int:
        return self._durable_end

    def usage(self) -> Usage:
        self._check()
        last_ms = max((parse_header(memoryview(one.data)).max_timestamp for one in self._batches), default=-1)
        return Usage(sum(len(one.data) for one in self._batches), last_ms if last_ms >= 0 else None)

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        if self._is_gone:
            appended(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted"))
        elif len(batch) > self._max_batch_bytes:
            appended(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the batch is too large"))
        else:
            base_offset = self._store(batch)
            self._waiting.append(_Waiting(base_offset, self._end, appended))
            self._commit()

    def _store(self, batch: bytes | memoryview) -> int:
        base_offset = self._end
        data = base_offset.to_bytes(BASE_OFFSET_BYTES) + bytes(batch)[BASE_OFFSET_BYTES:]
        last_offset = parse_header(memoryview(data)).last_offset
        self._batches.append(_Batch(base_offset, last_offset, data))
        self._end = last_offset + 1
        return base_offset

    def _commit(self) -> None:
        if self.is_held:
            return
        self._durable_end = self._end
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.appended(one.base_offset)
        for watcher in list(self._watchers):
            if watcher in self._watchers:
                watcher(self)

    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        return self._read(offset, max_bytes, waits, self.committed_end)

    def read_uncommitted(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        found = self._read(offset, max_bytes, waits, self.high_watermark)
        return found if isinstance(found, NotReady) else found._replace(aborted=())

    def _read(self, offset: int, max_bytes: int, waits: int, end: int) -> StreamRead | NotReady:
        self._check()
        if offset < self._start:
            raise OffsetOutOfRange(offset, self._start, end - 1)
        if self.is_cold and not waits:
            return self.in_thread(lambda: None)
        found: list[_Batch] = []
        for one in self._batches:
            if one.last_offset >= offset and one.base_offset < end:
                if found and sum(len(other.data) for other in found) + len(one.data) > max_bytes:
                    break
                found.append(one)
        if not found:
            return StreamRead(memoryview(b""), offset, ())
        next_offset = found[-1].last_offset + 1
        aborted = [
            AbortedTransaction(producer_id, first, marker)
            for producer_id, first, marker, is_aborted in sorted(self._ended, key=lambda one: one[1])
            if is_aborted and first < next_offset and marker >= offset
        ]
        return StreamRead(memoryview(b"".join(one.data for one in found)), next_offset, aborted)

    async def offset_for_time(self, timestamp_ms: int) -> int:
        self._check()
        for one in self._batches:
            for record in read_records(memoryview(one.data), UNFOLDED_BYTES_MAX):
                if self._start <= record.offset < self.committed_end and record.timestamp_ms >= timestamp_ms:
                    return record.offset
        return self.committed_end

    def in_thread(self, work: Callable[[], None]) -> NotReady:
        return _Soon(work)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _check(self) -> None:
        if self._is_gone:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted")

    # --- what tests do to it

    def release(self) -> None:
        """Commit what was held."""
        self.is_held = False
        self._commit()

    def append_in_transaction(self, batch: memoryview) -> None:
        base_offset = self._store(batch)
        self._open.setdefault(parse_header(batch).producer_id, base_offset)
        self._commit()

    def end_transaction(self, producer_id: int, is_commit: bool, now_ms: int) -> None:
        marker = self._store(build_marker(producer_id, 0, 0, is_commit, now_ms))
        if producer_id in self._open:
            self._ended.append((producer_id, self._open.pop(producer_id), marker, not is_commit))
        self._commit()

    def delete_before(self, offset: int) -> None:
        self._start = offset
        self._batches = [one for one in self._batches if one.last_offset >= offset]

    def delete(self) -> None:
        self._is_gone = True
        for watcher in list(self._watchers):
            watcher(self)
