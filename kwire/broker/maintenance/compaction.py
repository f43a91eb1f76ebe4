"""Compaction of the node's logs: which one, when, and that its result is swapped in safely.

One log at a time, the dirtiest first. The work itself is `storage.compaction.compact`, done in a worker process at a
bounded pace; the loop only chooses the log, asks for the swap, and drops a result that no longer fits because the log
was deleted, cut, parked or lost segments to retention meanwhile.

Which logs are looked at: those that are open. A log that is not open takes no appends, so it gets no dirtier; one that
was dirty when it was parked, or will have to be cleaned when some time has passed, is remembered and opened for it.
After a start a log is looked at from its first use on.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from kwire.broker.deletions import Deletions
from kwire.broker.dirt import NEVER_MS, Dirt, dirty_since, find_dirt, is_bounded
from kwire.broker.pace import Pace
from kwire.broker.partition import LogMaintenance, Partition
from kwire.broker.topics import Topic, Topics
from kwire.broker.worker_process import WorkerDied, WorkerProcess
from kwire.clock import Clock
from kwire.config.tree import LogConfig
from storage.batch_walk import first_timestamp
from storage.cleaned_segment import discard_new, is_whole
from storage.compaction import GROUP_SEGMENTS_MAX, Compacted, CompactionJob, SegmentGroup, compact
from storage.errors import CorruptBatch, DamagedLog, DiskFailure, StorageError, StorageFailed
from storage.files import Files
from storage.segment import LogSegment

log = logging.getLogger("kwire.broker")

V = TypeVar("V")

# To look at one log takes some ten microseconds; after this many the loop gets its turn.
LOGS_PER_TURN = 100
# To open a log takes half a millisecond; those not looked at for longest come first.
CLOSED_PER_LOOK = 10
# Logs that are not open and remembered for later; of more, the ones longest known are forgotten until they are opened.
REMEMBERED_MAX = 10_000
# Partitions whose trouble is kept in words.
ERRORS_MAX = 100
# After a failure a log is left alone for this long, so that others get their turn.
REST_MS = 60_000
# A log that kills its worker this often in a row is not tried again.
WORKER_DEATHS_MAX = 3
# While a worker is at it, its log is not idle.
TOUCH_SECONDS = 5.0

# Old segments stay open for readers that have just found them, at most this many for more than a moment.
OLD_SEGMENTS_MAX = 256
OLD_SEGMENT_MS = 1000

# Topic id and number of the partition: a topic made anew under the same name is another one.
Place = tuple[bytes, int]


class _Choice(NamedTuple):
    topic: Topic
    partition: Partition
    log: LogMaintenance
    dirt: Dirt

    @property
    def place(self) -> Place:
        return self.topic.topic_id, self.partition.index

    @property
    def name(self) -> str:
        return f"{self.partition.topic_name}-{self.partition.index}"


class Cleaning:
    """Called from the event loop. Counters tell what was done since the start; `dirtiest_ratio` is of the last look.

    `uncleanable` says of each damaged partition why it is left alone, until the next start; `last_errors` what failed.
    """

    def __init__(
        self, topics: Topics, clock: Clock, worker: WorkerProcess, config: LogConfig, files: Files | None = None
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._worker = worker
        self._config = config
        self._files = files or Files()
        self._due: dict[Place, int] = {}
        self._resting: dict[Place, int] = {}
        self._deaths: dict[Place, int] = {}
        # Where the closed segments of a log ended when a round could not get on: it is tried again when there are more.
        self._stuck: dict[Place, int] = {}
        self._uncleanable: dict[Place, str] = {}
        self._swapping: asyncio.Future[bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._deletions = Deletions(clock, topics.lanes.delete)
        self.last_errors: dict[str, str] = {}
        self.cleaned_count = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.removed_bytes = 0
        self.dropped_records = 0
        self.keyless_records = 0
        self.unreadable_batches = 0
        self.failures = 0
        self.abandoned_count = 0
        self.dirtiest_ratio = 0.0
        self._task = self._loop.create_task(self._repeat())

    @property
    def uncleanable(self) -> dict[str, str]:
        """By name of the partition."""
        named = {}
        for (topic_id, index), reason in self._uncleanable.items():
            name = self._topics.catalogue.name_of(topic_id)
            if name is not None:
                named[f"{name}-{index}"] = reason
        return named

    def reconfigure(self, config: LogConfig) -> None:
        """Go by this from the next look or compaction on."""
        self._config = config

    async def close(self) -> None:
        """Stop. What the worker is at comes to nothing; a swap that has begun is finished."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._swapping is not None:
            with suppress(StorageError):
                await self._swapping
        self._deletions.close()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
            if not self._config.is_cleaner_enabled:
                return
            try:
                while await self.clean_one():
                    pass
            except Exception:
                self.failures += 1
                log.exception("a round of compaction failed")

    async def clean_one(self) -> bool:
        """Clean the dirtiest log that needs it. Whether there was one and it got on: then the next may follow."""
        choice = await self._choose()
        return choice is not None and await self._clean(choice)

    # --- choosing

    async def _choose(self) -> _Choice | None:
        now_ms = self._clock.now_ms()
        best: _Choice | None = None
        self.dirtiest_ratio = 0.0
        for number, partition in enumerate(self._candidates(now_ms), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            topic = self._topics.get(partition.topic_name)
            if topic is None or topic.partition(partition.index) is not partition:
                continue
            place = (topic.topic_id, partition.index)
            if place in self._uncleanable or self._resting.get(place, 0) > now_ms:
                continue
            try:
                choice = await self._look(topic, partition, now_ms)
            except StorageError as error:
                self._fail(place, f"{partition.topic_name}-{partition.index}", error)
                continue
            if choice is not None and (best is None or choice.dirt.ratio > best.dirt.ratio):
                best = choice
        return best

    def _candidates(self, now_ms: int) -> list[Partition]:
        opened = [one for one in self._topics.open_partitions if one.settings.is_compacted]
        closed_count = 0
        for place in [place for place, due_ms in self._due.items() if due_ms <= now_ms]:
            topic = self._topics.get_by_id(place[0])
            partition = topic.partition(place[1]) if topic is not None else None
            if partition is None or not partition.settings.is_compacted:
                del self._due[place]
            elif not partition.is_open and self._resting.get(place, 0) <= now_ms:
                opened.append(partition)
                closed_count += 1
                if closed_count == CLOSED_PER_LOOK:
                    break
        return opened

    async def _look(self, topic: Topic, partition: Partition, now_ms: int) -> _Choice | None:
        """The log if it is to be cleaned; when that may change without anybody appending is written down."""
        place = (topic.topic_id, partition.index)
        found = partition.maintenance()
        if not found.is_writable:
            return None
        dirt = find_dirt(partition, now_ms)
        due_ms = dirt.due_ms
        is_overdue = False
        if is_bounded(partition.settings):
            since_ms = await self._dirty_since(found, dirt)
            overdue_ms = since_ms + partition.settings.compaction_lag_max_ms if since_ms != NEVER_MS else NEVER_MS
            is_overdue = overdue_ms < now_ms
            due_ms = min(due_ms, overdue_ms)
            if is_overdue:
                self._roll_if_old(partition, found, now_ms)
        self.dirtiest_ratio = max(self.dirtiest_ratio, dirt.ratio)
        is_dirty = dirt.dirty_bytes > 0 and (is_overdue or dirt.ratio > partition.settings.cleanable_ratio_min)
        if is_dirty and self._stuck.get(place) == dirt.segments[-1].next_offset:
            is_dirty = False
        if is_dirty:
            due_ms = now_ms
        elif is_overdue:
            due_ms = now_ms + REST_MS  # something is in the way: it is looked at again, opened if need be
        self._remember(place, due_ms)
        return _Choice(topic, partition, found, dirt) if is_dirty else None

    async def _dirty_since(self, found: LogMaintenance, dirt: Dirt) -> int:
        segments = list(found.segments())
        unknown = [
            one
            for one in segments
            if one.first_timestamp < 0 and one.is_sealed and one.next_offset > dirt.first_dirty_offset
        ]
        if unknown:
            # Those of an earlier run: their first batch tells.
            times = await self._topics.lanes.maintenance.run(_first_timestamps, unknown, self._files)
            for segment, timestamp in zip(unknown, times, strict=True):
                segment.first_timestamp = timestamp
        return dirty_since(segments, dirt.first_dirty_offset)

    def _roll_if_old(self, partition: Partition, found: LogMaintenance, now_ms: int) -> None:
        """What is too old is still in the segment that takes appends: close it, so that the next look can take it."""
        *_, last = found.segments()
        limit_ms = now_ms - partition.settings.compaction_lag_max_ms
        if not last.is_sealed and last.size_bytes and 0 <= last.first_timestamp < limit_ms:
            found.roll(now_ms)

    def _remember(self, place: Place, due_ms: int) -> None:
        if due_ms < NEVER_MS:
            _put(self._due, place, due_ms)
        else:
            self._due.pop(place, None)

    # --- cleaning

    async def _clean(self, choice: _Choice) -> bool:
        job = self._job(choice)
        try:
            result = await self._compacted(choice, job)
        except WorkerDied as error:
            await self._topics.lanes.delete.run(_discard, job, self._files)
            self._note_death(choice, error)
            return False
        except (DamagedLog, CorruptBatch) as error:
            if self._is_current(choice):
                self._give_up(choice, error)
            return False
        except Exception as error:
            await self._topics.lanes.delete.run(_discard, job, self._files)
            if self._is_current(choice):
                self._fail(choice.place, choice.name, error)
            return False
        self._deaths.pop(choice.place, None)
        self.read_bytes += result.read_bytes
        self.written_bytes += result.written_bytes
        if not result.groups:
            _put(self._stuck, choice.place, job.segments[-1].next_offset)
            return False
        self._stuck.pop(choice.place, None)
        self._swapping = asyncio.ensure_future(self._swap(choice, job, result))
        try:
            return await asyncio.shield(self._swapping)
        finally:
            if self._swapping.done():
                self._swapping = None

    def _job(self, choice: _Choice) -> CompactionJob:
        settings, dirt = choice.partition.settings, choice.dirt
        return CompactionJob(
            directory=choice.log.directory,
            segments=dirt.sealed(),
            clean_upto=dirt.first_dirty_offset,
            uncleanable_offset=dirt.uncleanable_offset,
            producers=choice.log.encoded_producers(),
            now_ms=self._clock.now_ms(),
            delete_retention_ms=settings.delete_retention_ms,
            keys_bytes_max=self._config.cleaner_keys_bytes_max,
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
        )

    async def _compacted(self, choice: _Choice, job: CompactionJob) -> Compacted:
        work = asyncio.ensure_future(self._worker.run(compact, job, Pace(self._config.cleaner_bytes_per_second_max)))
        try:
            while not work.done():
                # A parked log would remove the new files when it is opened again.
                self._topics.touch(choice.partition)
                await asyncio.wait([work], timeout=TOUCH_SECONDS)
            return work.result()
        finally:
            work.cancel()

    async def _swap(self, choice: _Choice, job: CompactionJob, result: Compacted) -> bool:
        """Some groups at a time, from the log's start on: wherever it ends, what was swapped is right and stays."""
        is_done = True
        try:
            for groups in _portions(result.groups):
                is_done = is_done and await self._swap_groups(choice, job, groups)
        except (StorageError, ValueError) as error:
            if self._is_current(choice):
                self._fail(choice.place, choice.name, error)
            if isinstance(error, StorageFailed):
                return False  # the swap may be decided on disk: then these files are the log
            is_done = False
        await self._topics.lanes.delete.run(_discard, job, self._files)
        if not is_done:
            self.abandoned_count += 1
            return False
        self.cleaned_count += 1
        self.dropped_records += result.record_count - result.kept_record_count
        self.keyless_records += result.keyless_count
        self.unreadable_batches += result.unreadable_batch_count
        self.last_errors.pop(choice.name, None)
        return True

    async def _swap_groups(self, choice: _Choice, job: CompactionJob, groups: list[SegmentGroup]) -> bool:
        removed = self._still_there(choice, groups)
        if not removed:
            return removed is not None
        # Opened on the loop, so what has to be read for it is read before.
        if not await self._topics.lanes.maintenance.run(_prepare, removed, job, groups, self._files):
            raise DiskFailure(f"a new segment of {job.directory} is not there")
        removed = self._still_there(choice, groups)
        if not removed:
            return removed is not None
        first_offset = removed[0].base_offset
        added = [group.added for group in groups if group.removed[0].base_offset >= first_offset]
        clean_upto = max(groups[-1].clean_upto, choice.log.clean_upto)
        swap = choice.log.begin_replacement(removed, added, clean_upto)
        try:
            await self._topics.lanes.maintenance.run(swap.run)
        except DiskFailure as error:
            swap.fail(error)
            raise
        old = swap.finish()
        delay_ms = choice.partition.settings.file_delete_delay_ms
        if len(self._deletions) > OLD_SEGMENTS_MAX:
            delay_ms = min(delay_ms, OLD_SEGMENT_MS)
        # Their files have lost their names; what is to be closed, and with that given back, is done by a thread.
        self._deletions.add(old, delay_ms)
        self.removed_bytes += sum(one.size_bytes for one in old) - sum(one.size_bytes for one in added)
        return True

    def _is_current(self, choice: _Choice) -> bool:
        """Whether the log is still the one that was chosen: neither deleted nor parked since."""
        return choice.log.is_current and self._topics.get(choice.partition.topic_name) is choice.topic

    def _still_there(self, choice: _Choice, groups: list[SegmentGroup]) -> list[LogSegment] | None:
        """The log's segments that are to be replaced, without groups that retention took meanwhile, if any are left.

        None when they are not what they were: then the result is worth nothing.
        """
        if not self._is_current(choice):
            return None
        known = {segment.base_offset: segment for segment in choice.log.segments()}
        first_offset = min(known, default=NEVER_MS)
        removed = []
        for group in groups:
            if group.removed[-1].base_offset < first_offset:
                continue
            for source in group.removed:
                segment = known.get(source.base_offset)
                if segment is None or (segment.next_offset, segment.size_bytes) != source[1:]:
                    return None
                removed.append(segment)
        return removed

    # --- trouble

    def _fail(self, place: Place, name: str, error: Exception) -> None:
        self.failures += 1
        _put(self._resting, place, self._clock.now_ms() + REST_MS)
        self._note_error(name, error)
        log.warning("compaction of %s failed, it is tried again later: %s", name, error)

    def _note_death(self, choice: _Choice, error: WorkerDied) -> None:
        deaths = self._deaths.pop(choice.place, 0) + 1
        _put(self._deaths, choice.place, deaths)
        if deaths < WORKER_DEATHS_MAX:
            self._fail(choice.place, choice.name, error)
        else:
            self._give_up(choice, error)

    def _give_up(self, choice: _Choice, error: Exception) -> None:
        self.failures += 1
        _put(self._uncleanable, choice.place, str(error))
        self._due.pop(choice.place, None)
        self._note_error(choice.name, error)
        log.error("%s is not compacted any more until the next start: %s", choice.name, error)

    def _note_error(self, name: str, error: Exception) -> None:
        self.last_errors.pop(name, None)
        if len(self.last_errors) >= ERRORS_MAX:
            del self.last_errors[next(iter(self.last_errors))]
        self.last_errors[name] = str(error)


def _put(places: dict[Place, V], place: Place, value: V) -> None:
    """Into a dictionary that forgets the one longest known when it is full."""
    places.pop(place, None)
    if len(places) >= REMEMBERED_MAX:
        del places[next(iter(places))]
    places[place] = value


def _discard(job: CompactionJob, files: Files) -> None:
    """In a thread: what a compaction wrote that came to nothing."""
    for segment in job.segments:
        discard_new(job.directory, segment.base_offset, files)


def _portions(groups: list[SegmentGroup]) -> Iterator[list[SegmentGroup]]:
    """Neighbours that are swapped as one: each swap asks the disk to sync half a dozen times, whatever its size."""
    portion: list[SegmentGroup] = []
    for group in groups:
        if portion and sum(len(one.removed) for one in (*portion, group)) > GROUP_SEGMENTS_MAX:
            yield portion
            portion = []
        portion.append(group)
    if portion:
        yield portion


def _prepare(removed: list[LogSegment], job: CompactionJob, groups: list[SegmentGroup], files: Files) -> bool:
    """In a thread: open what the swap needs, and see that the new files are there as they were written."""
    for segment in removed:
        segment.open_ahead()
    return all(is_whole(job.directory, group.added, files) for group in groups)


def _first_timestamps(segments: list[LogSegment], files: Files) -> list[int]:
    """In a thread."""
    return [max(first_timestamp(segment.path, files), 0) for segment in segments]
