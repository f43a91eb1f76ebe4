"""How far behind a reader is that stands at some offset: in offsets, and in seconds.

In offsets it is what lies between the reader and the last stable offset, which is the high watermark unless a
transaction is open: what is not decided yet keeps nobody waiting but itself. In seconds it is how long ago the first
record was appended that the reader has not passed yet, as far as the log can tell: by the record's own time, which is
the producer's clock unless the topic has `message.timestamp.type=LogAppendTime`. Nothing to read is 0.

Many readers are asked about at once and often (each scrape of `/metrics`), so:
- of a record only the header of its batch is looked at, and the time found is remembered; a reader that stands still
  costs nothing any more;
- a log that is not open is asked by its checkpoint, in a thread, and what that says holds until the log is used again;
- what has to be opened, or fetched from a cold disk, is bounded for each round. What is over the bound has no answer
  this time and its turn in a later round.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from kwire.broker.catalogue import TopicFacts
from kwire.broker.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.broker.topics import Topics
from kwire.broker.turns import open_in_turns
from kwire.clock import Clock
from storage.batch import BatchHeader, parse_header
from storage.checkpoint import CheckpointFile
from storage.directories import LogDirectories
from storage.errors import StorageError
from storage.files import Files
from storage.format import LOG_APPEND_TIME
from storage.producers import has_transactions
from storage.store import LogStore

NO_TOPIC_ID = bytes(16)
# To look a reader up takes some microseconds, to find a header a hundred; after so many the loop gets its turn.
READERS_PER_TURN = 500
HEADERS_PER_TURN = 20
# What one round may do at most. A checkpoint is one small file; to open a log takes a third of a millisecond.
CHECKPOINTS_PER_ROUND = 2000
OPENS_PER_ROUND = 100
COLD_READS_PER_ROUND = 200
# Cold reads that are under way at the same time.
COLD_READS_AT_ONCE = 20
# Remembered: times of records, and where logs that are not open begin and end.
TIMES_MAX = 50_000
EXTENTS_MAX = 50_000

K = TypeVar("K")
V = TypeVar("V")


class Reader(NamedTuple):
    """Whoever goes on at `offset`. A topic id that is not that of the topic says that it was of an earlier one."""

    topic: str
    partition: int
    offset: int
    topic_id: bytes = NO_TOPIC_ID


class Lag(NamedTuple):
    """`seconds` is None when nobody knows: no time in the record, damage, or its turn has not come yet."""

    log_start_offset: int
    high_watermark: int
    offsets: int
    seconds: float | None


class _Place(NamedTuple):
    """A partition that is the same for as long as its topic is not deleted."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Extent(NamedTuple):
    """Of a log that has so many bytes: one that is closed with another size has been used meanwhile.

    Where only the start was moved, by DeleteRecords, that is seen when the log is next found open.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int | None


class Lags:
    """Measures readers, one round at a time. Called from the event loop."""

    def __init__(
        self, topics: Topics, store: LogStore | LogDirectories, files: Files, cold_reads: ColdReads, clock: Clock
    ) -> None:
        self._topics = topics
        self._store = store
        self._files = files
        self._cold_reads = cold_reads
        self._clock = clock
        self._times: _Memory[tuple[_Place, int], int] = _Memory(TIMES_MAX)
        self._extents: _Memory[_Place, _Extent] = _Memory(EXTENTS_MAX)
        self._measuring = asyncio.Lock()

    async def measure(self, readers: Sequence[Reader]) -> list[Lag | None]:
        """The lag of each, in order; None where there is no such partition or its log cannot tell."""
        async with self._measuring:
            return await self._measure(readers)

    async def _measure(self, readers: Sequence[Reader]) -> list[Lag | None]:
        opened = {(one.topic_name, one.index): one for one in self._topics.open_partitions if one.is_open}
        places = await self._places(readers)
        extents = await self._find_extents(places, opened)
        await self._find_times(await self._unknown_times(readers, places, extents), opened)
        now_ms = self._clock.now_ms()
        lags: list[Lag | None] = []
        for number, (reader, place) in enumerate(zip(readers, places, strict=True), start=1):
            extent = extents.get(place) if place is not None else None
            if place is None or extent is None:
                lags.append(None)
            else:
                lags.append(self._lag(reader.offset, place, extent, now_ms))
            if number % READERS_PER_TURN == 0:
                await asyncio.sleep(0)
        return lags

    def _lag(self, offset: int, place: _Place, extent: _Extent, now_ms: int) -> Lag:
        start, high_watermark, end, _ = extent
        if offset >= end:
            return Lag(start, high_watermark, 0, 0.0)
        first_unread = max(offset, start)
        if first_unread == end:
            # What it missed is gone; there is nothing it could be waiting to read.
            return Lag(start, high_watermark, end - offset, 0.0)
        time_ms = self._times.get((place, first_unread))
        # A record may come from a clock that is ahead of ours.
        seconds = None if time_ms is None else max(0, now_ms - time_ms) / 1000
        return Lag(start, high_watermark, end - offset, seconds)

    async def _places(self, readers: Sequence[Reader]) -> list[_Place | None]:
        known: dict[str, TopicFacts | None] = {}
        places: list[_Place | None] = []
        for number, reader in enumerate(readers, start=1):
            if reader.topic not in known:
                known[reader.topic] = self._topics.catalogue.find(reader.topic)
            places.append(_place(reader, known[reader.topic]))
            if number % READERS_PER_TURN == 0:
                await asyncio.sleep(0)
        return places

    # --- where logs begin and end

    async def _find_extents(
        self, places: Sequence[_Place | None], opened: dict[tuple[str, int], Partition]
    ) -> dict[_Place, _Extent]:
        found: dict[_Place, _Extent] = {}
        unknown: list[_Place] = []
        for number, place in enumerate(dict.fromkeys(places), start=1):
            if place is not None:
                extent = self._known_extent(place, opened.get((place.topic, place.partition)))
                if extent is not None:
                    found[place] = extent
                elif len(unknown) < CHECKPOINTS_PER_ROUND:
                    unknown.append(place)
            if number % READERS_PER_TURN == 0:
                await asyncio.sleep(0)
        if unknown:
            found |= await self._look_at_closed(unknown)
        return found

    def _known_extent(self, place: _Place, partition: Partition | None) -> _Extent | None:
        if partition is not None and partition.is_open:
            stable_offset = partition.last_stable_offset
            extent = _Extent(partition.log_start_offset, partition.high_watermark, stable_offset, partition.size_bytes)
            self._extents.put(place, extent)
            return extent
        known = self._extents.get(place)
        return known if known is not None and known.size_bytes == self._stored_bytes(place) else None

    def _stored_bytes(self, place: _Place) -> int | None:
        """What the files of a closed log hold; None as long as nobody has measured them."""
        return self._topics.stored_bytes.get(place.folder)

    async def _look_at_closed(self, places: Sequence[_Place]) -> dict[_Place, _Extent]:
        found: dict[_Place, _Extent] = {}
        sizes = [self._stored_bytes(place) for place in places]
        paths = [self._store.path_of(place.folder) for place in places]
        # A log without a folder has never been written to, unless the folder may be where nobody can look.
        without_folder = None if _is_incomplete(self._store) else (0, 0)
        ends = await self._topics.lanes.survey.run(
            lambda: [without_folder if path is None else self._read_ends(path) for path in paths]
        )
        puzzling: list[_Place] = []
        for place, size_bytes, ends_of_one in zip(places, sizes, ends, strict=True):
            if ends_of_one is None or size_bytes != self._stored_bytes(place):
                puzzling.append(place)
            else:
                start, end = ends_of_one
                found[place] = _Extent(start, end, end, size_bytes)
                self._extents.put(place, found[place])
        # An empty log, one that was used meanwhile or has transactions, or one that is not as it should be: opening it
        # will tell.
        for place, partition in await self._open(puzzling[:OPENS_PER_ROUND]):
            extent = self._known_extent(place, partition)
            if extent is not None:
                found[place] = extent
        return found

    def _read_ends(self, path: str) -> tuple[int, int] | None:
        try:
            checkpoint = CheckpointFile(path, self._files).read()
        except OSError:
            return None
        if checkpoint is None or not checkpoint.is_clean or has_transactions(checkpoint.producers):
            return None
        return checkpoint.log_start_offset, checkpoint.offset

    async def _open(self, places: Sequence[_Place]) -> list[tuple[_Place, Partition]]:
        """Those of them that are still there."""
        found = []
        for place in places:
            topic = self._topics.get_by_id(place.topic_id)
            partition = topic.partition(place.partition) if topic is not None else None
            if partition is not None:
                found.append((place, partition))
        await open_in_turns(partition for _, partition in found)
        return [(place, partition) for place, partition in found if partition.is_open]

    # --- times of records

    async def _unknown_times(
        self, readers: Sequence[Reader], places: Sequence[_Place | None], extents: dict[_Place, _Extent]
    ) -> dict[_Place, set[int]]:
        """The offsets at which somebody is behind and whose time is not remembered."""
        wanted: dict[_Place, set[int]] = {}
        for number, (reader, place) in enumerate(zip(readers, places, strict=True), start=1):
            extent = extents.get(place) if place is not None else None
            if place is not None and extent is not None:
                offset = max(reader.offset, extent.log_start_offset)
                if offset < extent.last_stable_offset and self._times.get((place, offset)) is None:
                    wanted.setdefault(place, set()).add(offset)
            if number % READERS_PER_TURN == 0:
                await asyncio.sleep(0)
        return wanted

    async def _find_times(self, wanted: dict[_Place, set[int]], opened: dict[tuple[str, int], Partition]) -> None:
        found = [(place, opened.get((place.topic, place.partition))) for place in wanted]
        usable = [(place, partition) for place, partition in found if partition is not None and partition.is_open]
        closed = [place for place, partition in found if partition is None or not partition.is_open]
        usable += await self._open(closed[:OPENS_PER_ROUND])
        cold: list[tuple[_Place, int, Partition]] = []
        number = 0
        for place, partition in usable:
            for offset in sorted(wanted[place]):
                if partition.is_open and not self._look_at_warm(place, offset, partition):
                    cold.append((place, offset, partition))
                number += 1
                if number % HEADERS_PER_TURN == 0:
                    await asyncio.sleep(0)
        await self._look_at_cold(cold[:COLD_READS_PER_ROUND])

    def _look_at_warm(self, place: _Place, offset: int, partition: Partition) -> bool:
        """False if that would wait for the disk."""
        try:
            if partition.cold_start(offset) is not None:
                return False
            self._remember_time(place, offset, partition)
        except StorageError:
            pass  # gone, or damaged: there is nothing to be known about it
        return True

    async def _look_at_cold(self, cold: Sequence[tuple[_Place, int, Partition]]) -> None:
        for first in range(0, len(cold), COLD_READS_AT_ONCE):
            some = cold[first : first + COLD_READS_AT_ONCE]
            warm_ups = []
            for _, offset, partition in some:
                with suppress(StorageError):
                    warm_up = partition.cold_start(offset) if partition.is_open else None
                    if warm_up is not None:
                        warm_ups.append(warm_up)
            await self._cold_reads.find(warm_ups)
            for place, offset, partition in some:
                if partition.is_open:
                    with suppress(StorageError):
                        self._remember_time(place, offset, partition)

    def _remember_time(self, place: _Place, offset: int, partition: Partition) -> None:
        view = partition.read(offset, 1).view
        time_ms = time_of(parse_header(view), offset) if view else None
        if time_ms is not None:
            self._times.put((place, offset), time_ms)


def time_of(header: BatchHeader, offset: int) -> int | None:
    """When the record at `offset` was made, or appended, as near as the header of its batch tells.

    Exact for the first record of a batch, mostly for the last, and in between as if they had come evenly.
    """
    first_ms, last_ms = header.base_timestamp, header.max_timestamp
    if last_ms < 0:
        return None
    if header.timestamp_type == LOG_APPEND_TIME or not 0 <= first_ms < last_ms:
        return last_ms
    # Behind a gap that compaction left, the batch begins after the offset.
    passed = max(0, offset - header.base_offset)
    return first_ms + (last_ms - first_ms) * passed // max(1, header.last_offset_delta)


def _is_incomplete(store: LogStore | LogDirectories) -> bool:
    return isinstance(store, LogDirectories) and bool(store.offline_dirs)


def _place(reader: Reader, facts: TopicFacts | None) -> _Place | None:
    if facts is None or not 0 <= reader.partition < facts.partition_count:
        return None
    if reader.topic_id not in (NO_TOPIC_ID, facts.topic_id):
        return None
    return _Place(facts.topic_id, reader.topic, reader.partition)


class _Memory(Generic[K, V]):
    """The values that were used last, so many at most."""

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
