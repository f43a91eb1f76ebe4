"""Consumer lag: the distance of a reader from the end of the log, in offsets and in seconds.

The lag in offsets is the distance to the last stable offset. Records of open transactions are therefore not counted.
The lag in seconds is the age of the first record that the reader has not read yet. The age is computed from the
record's timestamp. With `message.timestamp.type=CreateTime`, the timestamp comes from the producer's clock. A reader
that has read everything has a lag of 0.

Each scrape of `/metrics` measures the lag of many readers. The cost is limited as follows:
- Only the header of a record's batch is read. The timestamp is cached, so a reader whose offset does not change needs
  no further read.
- A closed log is not opened if its checkpoint contains the offsets. A thread reads the checkpoint. The offsets are
  cached until the log is used again.
- Each round opens a limited number of logs and makes a limited number of cold reads. Readers above these limits have an
  incomplete result or none, and are measured in a later round.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from kwire.broker.chunked_answers import open_in_chunks
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from storage.batch.format import LOG_APPEND_TIME
from storage.batch.record_batch import BatchHeader, parse_header
from storage.data_directory.directories import LogDirectories
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import StorageError
from storage.log.producers import has_transactions
from storage.recovery.checkpoint import CheckpointFile

NO_TOPIC_ID = bytes(16)
# Looking up a reader takes a few microseconds, and finding a batch header about a hundred microseconds. After this many
# readers or headers, the event loop runs other work.
READERS_PER_CHUNK = 500
HEADERS_PER_CHUNK = 20
# The limits of one round. A checkpoint is one small file. Opening a log takes a third of a millisecond.
CHECKPOINTS_PER_ROUND = 2000
OPENS_PER_ROUND = 100
COLD_READS_PER_ROUND = 200
# The maximum number of concurrent cold reads.
COLD_READS_AT_ONCE = 20
# The maximum number of entries in the two caches: timestamps of records, and extents of logs.
TIMES_MAX = 50_000
EXTENTS_MAX = 50_000

K = TypeVar("K")
V = TypeVar("V")


class Reader(NamedTuple):
    """A consumer whose next record is at `offset`.

    `topic_id` may be the id of a deleted topic with the same name. The lag of such a reader is None.
    """

    topic: str
    partition: int
    offset: int
    topic_id: bytes = NO_TOPIC_ID


class Lag(NamedTuple):
    """The lag of a reader.

    `seconds` is None if the first unread record has no timestamp or is damaged, or if a later round has to read it from
    the disk.
    """

    log_start_offset: int
    high_watermark: int
    offsets: int
    seconds: float | None


class _PartitionKey(NamedTuple):
    """Identifies a partition. A topic that is deleted and created again has another topic id."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Extent(NamedTuple):
    """The offsets of a log when it had `size_bytes`. If a closed log has another size, the extent is outdated.

    DeleteRecords changes the log start offset, but not the size. A round finds the new offset while the log is open.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int | None


class Lags:
    """Measures the lag of readers, one round at a time. Use it only in the event loop's thread."""

    def __init__(
        self, topics: Topics, store: LogStore | LogDirectories, files: Files, cold_reads: ColdReads, clock: Clock
    ) -> None:
        self._topics = topics
        self._store = store
        self._files = files
        self._cold_reads = cold_reads
        self._clock = clock
        self._times: _LruCache[tuple[_PartitionKey, int], int] = _LruCache(TIMES_MAX)
        self._extents: _LruCache[_PartitionKey, _Extent] = _LruCache(EXTENTS_MAX)
        self._measuring = asyncio.Lock()

    async def measure(self, readers: Sequence[Reader]) -> list[Lag | None]:
        """Return the lag of each reader, in order. None if the partition does not exist or its offsets are unknown."""
        async with self._measuring:
            return await self._measure(readers)

    async def offsets_behind(self, readers: Sequence[Reader]) -> list[int | None]:
        """Return the lag of each reader in offsets. Unlike `measure`, this reads no records."""
        async with self._measuring:
            opened = {(one.topic_name, one.index): one for one in self._topics.open_partitions if one.is_open}
            keys = await self._keys(readers)
            extents = await self._find_extents(keys, opened)
            found = [extents.get(key) if key is not None else None for key in keys]
            return [
                None if extent is None else max(0, extent.last_stable_offset - reader.offset)
                for reader, extent in zip(readers, found, strict=True)
            ]

    async def _measure(self, readers: Sequence[Reader]) -> list[Lag | None]:
        opened = {(one.topic_name, one.index): one for one in self._topics.open_partitions if one.is_open}
        keys = await self._keys(readers)
        extents = await self._find_extents(keys, opened)
        await self._find_times(await self._unknown_times(readers, keys, extents), opened)
        now_ms = self._clock.now_ms()
        lags: list[Lag | None] = []
        for number, (reader, key) in enumerate(zip(readers, keys, strict=True), start=1):
            extent = extents.get(key) if key is not None else None
            if key is None or extent is None:
                lags.append(None)
            else:
                lags.append(self._lag(reader.offset, key, extent, now_ms))
            if number % READERS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return lags

    def _lag(self, offset: int, key: _PartitionKey, extent: _Extent, now_ms: int) -> Lag:
        start, high_watermark, end, _ = extent
        if offset >= end:
            return Lag(start, high_watermark, 0, 0.0)
        first_unread = max(offset, start)
        if first_unread == end:
            # All records that the reader has not read are deleted, so there is no record left to read.
            return Lag(start, high_watermark, end - offset, 0.0)
        time_ms = self._times.get((key, first_unread))
        # The producer's clock may be ahead of this server's clock.
        seconds = None if time_ms is None else max(0, now_ms - time_ms) / 1000
        return Lag(start, high_watermark, end - offset, seconds)

    async def _keys(self, readers: Sequence[Reader]) -> list[_PartitionKey | None]:
        known: dict[str, TopicFacts | None] = {}
        keys: list[_PartitionKey | None] = []
        for number, reader in enumerate(readers, start=1):
            if reader.topic not in known:
                known[reader.topic] = self._topics.catalogue.find(reader.topic)
            keys.append(_key_of(reader, known[reader.topic]))
            if number % READERS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return keys

    # --- where logs begin and end

    async def _find_extents(
        self, keys: Sequence[_PartitionKey | None], opened: dict[tuple[str, int], Partition]
    ) -> dict[_PartitionKey, _Extent]:
        found: dict[_PartitionKey, _Extent] = {}
        unknown: list[_PartitionKey] = []
        for number, key in enumerate(dict.fromkeys(keys), start=1):
            if key is not None:
                extent = self._known_extent(key, opened.get((key.topic, key.partition)))
                if extent is not None:
                    found[key] = extent
                elif len(unknown) < CHECKPOINTS_PER_ROUND:
                    unknown.append(key)
            if number % READERS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        if unknown:
            found |= await self._read_closed_extents(unknown)
        return found

    def _known_extent(self, key: _PartitionKey, partition: Partition | None) -> _Extent | None:
        if partition is not None and partition.is_open:
            stable_offset = partition.last_stable_offset
            extent = _Extent(partition.log_start_offset, partition.high_watermark, stable_offset, partition.size_bytes)
            self._extents.put(key, extent)
            return extent
        known = self._extents.get(key)
        return known if known is not None and known.size_bytes == self._stored_bytes(key) else None

    def _stored_bytes(self, key: _PartitionKey) -> int | None:
        """Return the size of a closed log's files, or None if it has not been measured."""
        return self._topics.stored_bytes.get(key.folder)

    async def _read_closed_extents(self, keys: Sequence[_PartitionKey]) -> dict[_PartitionKey, _Extent]:
        found: dict[_PartitionKey, _Extent] = {}
        sizes = [self._stored_bytes(key) for key in keys]
        paths = [self._store.path_of(key.folder) for key in keys]
        # A log without a folder is empty, unless a data directory is offline: the folder may be in that directory.
        without_folder = None if _is_incomplete(self._store) else (0, 0)
        ends = await self._topics.lanes.survey.run(
            lambda: [without_folder if path is None else self._read_ends(path) for path in paths]
        )
        uncertain: list[_PartitionKey] = []
        for key, size_bytes, ends_of_one in zip(keys, sizes, ends, strict=True):
            if ends_of_one is None or size_bytes != self._stored_bytes(key):
                uncertain.append(key)
            else:
                start, end = ends_of_one
                found[key] = _Extent(start, end, end, size_bytes)
                self._extents.put(key, found[key])
        # These logs have to be opened, because they have no usable checkpoint or were used in the meantime.
        for key, partition in await self._open(uncertain[:OPENS_PER_ROUND]):
            extent = self._known_extent(key, partition)
            if extent is not None:
                found[key] = extent
        return found

    def _read_ends(self, path: str) -> tuple[int, int] | None:
        try:
            checkpoint = CheckpointFile(path, self._files).read()
        except OSError:
            return None
        if checkpoint is None or not checkpoint.is_clean or has_transactions(checkpoint.producers):
            return None
        return checkpoint.log_start_offset, checkpoint.offset

    async def _open(self, keys: Sequence[_PartitionKey]) -> list[tuple[_PartitionKey, Partition]]:
        """Open the logs of the partitions that still exist, and return the partitions whose log is open."""
        found = []
        for key in keys:
            topic = self._topics.get_by_id(key.topic_id)
            partition = topic.partition(key.partition) if topic is not None else None
            if partition is not None:
                found.append((key, partition))
        await open_in_chunks(partition for _, partition in found)
        return [(key, partition) for key, partition in found if partition.is_open]

    # --- times of records

    async def _unknown_times(
        self, readers: Sequence[Reader], keys: Sequence[_PartitionKey | None], extents: dict[_PartitionKey, _Extent]
    ) -> dict[_PartitionKey, set[int]]:
        """Return the offsets of the first unread records whose timestamps are not cached, by partition."""
        wanted: dict[_PartitionKey, set[int]] = {}
        for number, (reader, key) in enumerate(zip(readers, keys, strict=True), start=1):
            extent = extents.get(key) if key is not None else None
            if key is not None and extent is not None:
                offset = max(reader.offset, extent.log_start_offset)
                if offset < extent.last_stable_offset and self._times.get((key, offset)) is None:
                    wanted.setdefault(key, set()).add(offset)
            if number % READERS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return wanted

    async def _find_times(
        self, wanted: dict[_PartitionKey, set[int]], opened: dict[tuple[str, int], Partition]
    ) -> None:
        found = [(key, opened.get((key.topic, key.partition))) for key in wanted]
        usable = [(key, partition) for key, partition in found if partition is not None and partition.is_open]
        closed = [key for key, partition in found if partition is None or not partition.is_open]
        usable += await self._open(closed[:OPENS_PER_ROUND])
        cold: list[tuple[_PartitionKey, int, Partition]] = []
        number = 0
        for key, partition in usable:
            for offset in sorted(wanted[key]):
                if partition.is_open and not self._find_warm_time(key, offset, partition):
                    cold.append((key, offset, partition))
                number += 1
                if number % HEADERS_PER_CHUNK == 0:
                    await asyncio.sleep(0)
        await self._find_cold_times(cold[:COLD_READS_PER_ROUND])

    def _find_warm_time(self, key: _PartitionKey, offset: int, partition: Partition) -> bool:
        """Find the timestamp of a record if it is in memory. Returns False if the disk would have to be read."""
        try:
            if partition.cold_start(offset) is not None:
                return False
            self._remember_time(key, offset, partition)
        except StorageError:
            pass  # the record is deleted or damaged, so its timestamp stays unknown
        return True

    async def _find_cold_times(self, cold: Sequence[tuple[_PartitionKey, int, Partition]]) -> None:
        for first in range(0, len(cold), COLD_READS_AT_ONCE):
            some = cold[first : first + COLD_READS_AT_ONCE]
            warm_ups = []
            for _, offset, partition in some:
                with suppress(StorageError):
                    warm_up = partition.cold_start(offset) if partition.is_open else None
                    if warm_up is not None:
                        warm_ups.append(warm_up)
            await self._cold_reads.find(warm_ups)
            for key, offset, partition in some:
                if partition.is_open:
                    with suppress(StorageError):
                        self._remember_time(key, offset, partition)

    def _remember_time(self, key: _PartitionKey, offset: int, partition: Partition) -> None:
        view = partition.read(offset, 1).view
        time_ms = time_of(parse_header(view), offset) if view else None
        if time_ms is not None:
            self._times.put((key, offset), time_ms)


def time_of(header: BatchHeader, offset: int) -> int | None:
    """Return the timestamp of the record at `offset`, estimated from the header of its batch.

    The result is exact for the first record of a batch, and mostly exact for the last. For other records, it is
    interpolated.
    """
    first_ms, last_ms = header.base_timestamp, header.max_timestamp
    if last_ms < 0:
        return None
    if header.timestamp_type == LOG_APPEND_TIME or not 0 <= first_ms < last_ms:
        return last_ms
    # If compaction removed the record, the header is that of the next batch, which begins after `offset`.
    passed = max(0, offset - header.base_offset)
    return first_ms + (last_ms - first_ms) * passed // max(1, header.last_offset_delta)


def _is_incomplete(store: LogStore | LogDirectories) -> bool:
    return isinstance(store, LogDirectories) and bool(store.offline_dirs)


def _key_of(reader: Reader, facts: TopicFacts | None) -> _PartitionKey | None:
    if facts is None or not 0 <= reader.partition < facts.partition_count:
        return None
    if reader.topic_id not in (NO_TOPIC_ID, facts.topic_id):
        return None
    return _PartitionKey(facts.topic_id, reader.topic, reader.partition)


class _LruCache(Generic[K, V]):
    """A cache that keeps the `count_max` most recently used values."""

    __slots__ = ("_count_max", "_values")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        values = self._values
        values.pop(key, None)
        if len(values) >= self._count_max:
            del values[next(iter(values))]
        values[key] = value
