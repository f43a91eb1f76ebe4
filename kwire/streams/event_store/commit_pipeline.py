"""The event store: commits are written to the journal in groups, synced, and then applied to their topics.

One group is in flight. What is asked for meanwhile waits and becomes the next one, so many writers share one sync, and
each commit is judged by the logs as they are. docs/decisions/0013-event-journal.md says why it is so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition import NEVER_MS, WAIT_MS_MAX, Partition, Syncs, code_of
from kwire.broker.store.commit import LATER, Commit, Done, InvalidRecords, Outcome, Part, Plan
from kwire.broker.store.journal import (
    COMMIT_BYTES_MAX,
    NewRecord,
    batches_from,
    commits_in,
    encode_value,
    journal_batch,
    last_batches,
)
from kwire.broker.store.known_keys import KEYS_JOURNAL_BYTES, KnownCommit, KnownKeys
from kwire.broker.store.repair import repair
from kwire.broker.store.sync_mark import SyncMark
from kwire.broker.topics import EVENTS_TOPIC, Topic, Topics
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.batch import BatchHeader
from storage.errors import RecordProblem, StorageError

log = logging.getLogger("kwire.broker")

# How far all topics are synced, written at a clean stop.
MARK_KEY = "events/mark"
# What goes into one batch of the journal, if more than one commit waits: to write so much takes the loop a few ms.
GROUP_BYTES_MAX = 4 * 1024 * 1024
GROUP_EVENTS_MAX = 20_000
GROUP_COMMITS_MAX = 2000
# What may wait for the groups before it.
WAITING_BYTES_MAX = 128 * 1024 * 1024
WAITING_COMMITS_MAX = 100_000
# Those who wait are looked at so often for whether their time is over.
LOOK_SECONDS = 1.0
# A batch that could not be applied is tried again so often; the mark is looked at as often.
RETRY_SECONDS = 0.5
# The mark moves at least so often while events come.
MARK_SECONDS = 30.0
# At the stop: how long a disk that hangs is waited for.
CLOSE_SECONDS = 30.0
CLOSE_POLL_SECONDS = 0.01

# The problems of the records of a batch by its topic's schemas; later if there is much to look at.
CheckedBatch: TypeAlias = "Sequence[RecordProblem] | asyncio.Future[Sequence[RecordProblem]]"


class Committing:
    """Called from the event loop. `open` comes first, before anybody reads event topics; `close` last."""

    def __init__(self, topics: Topics, metastore: MetaStore, clock: Clock, syncs: Syncs) -> None:
        self.topics = topics
        self.clock = clock
        self.keys = KnownKeys()
        self.mark = SyncMark(syncs, 0)
        self._metastore = metastore
        self._syncs = syncs
        self._journal: Partition | None = None
        self._is_making_journal = False
        self._is_begun = False
        self._is_closed = False
        # Why nothing can be committed in this run, if so.
        self._failure: str | None = None
        self._waiting: deque[Commit] = deque()
        self._waiting_bytes = 0
        self._group: Plan | None = None
        # Parts that the journal has and that could not be applied; their topics take nothing until then.
        self._behind: dict[Partition, deque[tuple[Commit, Part]]] = {}
        # Topics that could not be completed from the journal at the start, and why.
        self._broken: dict[bytes, str] = {}
        self._look: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._mark_look: asyncio.TimerHandle | None = None
        self.group_count = 0
        self.commit_count = 0
        self.event_count = 0
        self.repaired_count = 0
        topics.held_from[EVENTS_TOPIC] = lambda: self.mark.position

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    # --- start and stop

    async def open(self) -> None:
        """Complete all topics from the journal. If it cannot be read, nothing is committed until the next start."""
        if self.topics.get(EVENTS_TOPIC) is None:
            return
        try:
            await self._open()
        except (StorageError, KafkaError) as error:
            log.critical("the event journal cannot be used, and no events are taken until the next start: %s", error)
            self._failure = str(error)

    async def _open(self) -> None:
        journal = self._journal = (await self.topics.events_topic()).partitions[0]
        end = journal.log_end_offset
        if journal.high_watermark < end and journal.is_writable:
            # A kill left commits in the page cache: they count once they are on disk.
            await self._reached(journal, end)
        self.mark = SyncMark(self._syncs, await self._noted_mark(journal))
        if self.mark.position < journal.high_watermark:
            self.repaired_count, self._broken = await repair(self.topics, journal, self.mark.position)
            # Whatever was met may be in the page cache only.
            self.mark.touch((one for one in tuple(self.topics.open_partitions) if one.settings.is_event_topic), 0)
        self.keys.read_back(last_batches(journal, KEYS_JOURNAL_BYTES))

    async def _noted_mark(self, journal: Partition) -> int:
        """What the last stop or the newest record says. A note about positions that are not there is taken back.

        It is about a journal whose files are gone; the one that begins in its place would grow into it.
        """
        entry = self._metastore.get(MARK_KEY)
        noted = entry.value["position"] if entry is not None else 0
        if entry is not None and noted > journal.high_watermark:
            log.error("the event journal ends at %d, and went up to %d", journal.high_watermark, noted)
            noted = 0
            await self._metastore.commit([Change(MARK_KEY, {"position": noted}, entry.revision)])
        return max(noted, min(_last_mark(journal), journal.high_watermark))

    async def _reached(self, journal: Partition, end: int) -> None:
        reached: asyncio.Future[KafkaError | None] = self._loop.create_future()
        journal.on_reached(end, lambda error: None if reached.done() else reached.set_result(error))
        error = await reached
        if error is not None:
            raise StorageError(f"the event journal cannot be synced: {error}")

    async def close(self) -> None:
        """Finish what waits, let all topics be synced, and note that the next start has nothing to repair."""
        deadline = self._loop.time() + CLOSE_SECONDS
        while (self._waiting or self._group is not None) and self._loop.time() < deadline:
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        self._is_closed = True
        for commit in self._waiting:
            self._tell(commit, _stopping())
        self._waiting.clear()
        for timer in (self._look, self._retry, self._mark_look):
            if timer is not None:
                timer.cancel()
        journal = self._journal
        if journal is None or self._group is not None or self._failure is not None or self._is_any_topic_behind:
            return
        end = journal.high_watermark
        while self.mark.position < end and not self.mark.is_stuck and self._loop.time() < deadline:
            self.mark.begin_if_due(end, bytes_min=0)
            self.mark.look()
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        if self.mark.position < end:
            return
        entry = self._metastore.get(MARK_KEY)
        if entry is not None and entry.value["position"] == end:
            return
        try:
            revision = entry.revision if entry is not None else ABSENT
            await self._metastore.commit([Change(MARK_KEY, {"position": end}, revision)])
        except (StorageError, Conflict):
            log.exception("how far events are synced could not be noted; the next start finds it out")

    # --- asking for commits

    def add(self, commit: Commit, checked: "asyncio.Future[Sequence[RecordProblem]] | None" = None) -> None:
        """Its `done` is called once, later; raises KafkaError if it cannot even wait."""
        if self._is_closed:
            raise _stopping()
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the event journal cannot be used: {self._failure}")
        if commit.size_bytes > COMMIT_BYTES_MAX:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{commit.size_bytes} bytes are to be committed at once, {COMMIT_BYTES_MAX} are allowed",
            )
        if self._waiting_bytes + commit.size_bytes > WAITING_BYTES_MAX or len(self._waiting) >= WAITING_COMMITS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many events wait for the disk, try again")
        if checked is not None:
            commit.is_checked = False
            checked.add_done_callback(lambda done: self._checked(commit, done))
        self._waiting.append(commit)
        self._waiting_bytes += commit.size_bytes
        self._begin_soon()
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_after)

    def produce(
        self,
        topic: Topic,
        batch: memoryview,
        header: BatchHeader,
        check: Callable[[Topic, memoryview, BatchHeader], CheckedBatch] | None,
        done: Done,
        timeout_ms: int = WAIT_MS_MAX,
        validate: Validate = validate,
    ) -> None:
        """A batch of a Kafka producer, as it came; it is copied. Raises what is wrong with it at first sight."""
        if header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A topic of the event store takes no transactional records.")
        now_ms = self.clock.now_ms()
        own = memoryview(bytearray(batch))
        own, header = topic.partitions[0].prepare(own, header, now_ms, validate)
        checked = check(topic, own, header) if check is not None else ()
        commit = Commit([Part(topic, own, header, now_ms)], done, self._loop.time() + timeout_ms / 1000)
        if isinstance(checked, asyncio.Future):
            self.add(commit, checked)
        else:
            commit.refusal = InvalidRecords(checked) if checked else None
            self.add(commit)

    def _checked(self, commit: Commit, done: "asyncio.Future[Sequence[RecordProblem]]") -> None:
        commit.is_checked = True
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if isinstance(error, KafkaError | StreamError):
            commit.refusal = error
        elif error is not None:
            # Nothing is known to be wrong with the records: whoever sent them may send them again.
            log.error("records of %s could not be checked: %r", commit.parts[0].topic.name, error)
            commit.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the records could not be checked")
        elif problems := done.result():
            commit.refusal = InvalidRecords(problems)
        self._begin_soon()

    # --- groups

    def _begin_soon(self) -> None:
        if not self._is_begun and self._group is None:
            self._is_begun = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Everything of this turn of the loop is there: judge what waits, and write what can be written."""
        self._is_begun = False
        if self._group is not None or not self._waiting:
            return
        if self._journal is None:
            self._make_journal()
            return
        plan = Plan(self.topics, self.keys, self._refused)
        told = self._fill(plan)
        if plan.commits:
            self._write(plan, self._journal)
        for commit, outcome in told:
            self._tell(commit, outcome)
        if len(told) >= GROUP_COMMITS_MAX:
            self._begin_soon()

    def _fill(self, plan: Plan) -> list[tuple[Commit, Outcome]]:
        """Take what can be taken out of the queue, in order; those that need not, or must not, be written are told."""
        told: list[tuple[Commit, Outcome]] = []
        put_off: list[Commit] = []
        waiting = self._waiting
        while waiting and max(len(plan.commits), len(put_off), len(told)) < GROUP_COMMITS_MAX:
            commit = waiting[0]
            if plan.commits and (
                plan.size_bytes + commit.size_bytes > GROUP_BYTES_MAX
                or plan.event_count + commit.event_count > GROUP_EVENTS_MAX
            ):
                break
            waiting.popleft()
            outcome = plan.judge(commit)
            if outcome is LATER:
                put_off.append(commit)
                continue
            self._waiting_bytes -= commit.size_bytes
            if outcome is not None:
                told.append((commit, outcome))
        waiting.extendleft(reversed(put_off))
        return told

    def _refused(self, part: Part) -> str | None:
        if part.partition in self._behind:
            return "events that are committed could not be written to it yet"
        return self._broken.get(part.topic.topic_id)

    @property
    def _is_any_topic_behind(self) -> bool:
        """Then the mark stays: what it passes is not looked at again, and a topic that lost events would take new."""
        if self._broken:
            name_of = self.topics.catalogue.name_of
            self._broken = {one: reason for one, reason in self._broken.items() if name_of(one) is not None}
        return bool(self._behind or self._broken)

    def _write(self, plan: Plan, journal: Partition) -> None:
        mark = self.mark.position
        records = [
            NewRecord(
                commit.event_count,
                None if commit.key is None else commit.digest + commit.key,
                encode_value(mark, [part.journaled() for part in commit.parts], commit.order),
            )
            for commit in plan.commits
        ]
        try:
            appended = journal.append(*journal_batch(records, self.clock.now_ms()))
        except (StorageError, KafkaError) as error:
            refusal = error if isinstance(error, KafkaError) else KafkaError(code_of(error), str(error))
            self._fail(plan, refusal)
            return
        position = appended.base_offset
        for commit in plan.commits:
            commit.position = position
            position += commit.event_count
        self._group = plan
        # Who waits has a time limit; the group has none, because nobody knows what became of it before the disk says.
        journal.on_reached(appended.last_offset + 1, self._written, NEVER_MS)

    def _fail(self, plan: Plan, error: KafkaError) -> None:
        for commit in plan.commits:
            self._tell(commit, error)
        if self._waiting:
            self._begin_soon()

    def _written(self, error: KafkaError | None) -> None:
        """The disk has said what became of the group."""
        plan, self._group = self._group, None
        assert plan is not None
        if error is not None:
            self._fail(plan, error)
            return
        # All of it is in the topics before any of it is seen.
        touched: dict[Partition, None] = {}
        for commit in plan.commits:
            for part in commit.parts:
                if self._apply(commit, part):
                    touched[part.partition] = None
        self.group_count += 1
        self.commit_count += len(plan.commits)
        self.event_count += plan.event_count
        for commit in plan.commits:
            if commit.key is not None:
                placed = [part.placed() for part in commit.parts]
                self.keys.remember(commit.key, KnownCommit(commit.digest, placed, commit.order))
        self._show(touched)
        for commit in plan.commits:
            if not commit.left:
                self._tell(commit, commit.stored())
        self._move_mark(touched, plan.size_bytes)
        if self._waiting:
            self._begin_soon()

    def _apply(self, commit: Commit, part: Part) -> bool:
        partition = part.partition
        if partition in self._behind:
            self._behind[partition].append((commit, part))
            return False
        if partition.is_forgotten:  # deleted since it was judged: it has been there, and is gone
            commit.left -= 1
            return False
        try:
            self._append(part)
        except (StorageError, KafkaError) as error:
            log.error("committed events cannot be written to %s yet: %s", part.topic.name, error)
            self._behind[partition] = deque([(commit, part)])
            self._retry_soon()
            return False
        commit.left -= 1
        return True

    def _append(self, part: Part) -> None:
        appended = part.partition.append_journaled(part.batch, part.header, part.now_ms)
        if appended.is_duplicate or appended.base_offset != part.header.base_offset:
            # It cannot be; but a topic that differs from the journal must not go on.
            self._broken[part.topic.topic_id] = "it differs from the event journal"
            raise StorageError(f"{part.topic.name}: offset {part.header.base_offset} is at {appended.base_offset}")

    def _show(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            try:
                partition.commit_all()
            except Exception:  # one reader that fails must not keep the others from being told
                log.exception("readers of %s could not be told", partition.topic_name)

    def _tell(self, commit: Commit, outcome: Outcome) -> None:
        if commit.is_told:
            return
        commit.is_told = True
        try:
            commit.done(outcome)
        except Exception:  # the others of its group want to know too
            log.exception("somebody who waits for a commit could not be told")

    # --- what could not be applied

    def _retry_soon(self) -> None:
        if self._retry is None and not self._is_closed:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        for partition, parts in list(self._behind.items()):
            done: list[Commit] = []
            try:
                while parts:
                    commit, part = parts[0]
                    if not partition.is_forgotten:
                        self._append(part)
                    parts.popleft()
                    commit.left -= 1
                    done.append(commit)
            except (StorageError, KafkaError):
                pass  # told once; who waits is told that the time is over
            else:
                del self._behind[partition]
                log.warning("committed events have been written to %s", partition.topic_name)
            if done and not partition.is_forgotten:
                self.mark.touch([partition], 0)
                self._show([partition])
            for commit in done:
                if not commit.left:
                    self._tell(commit, commit.stored())
        self._move_mark((), 0)
        if self._behind:
            self._retry_soon()

    def _move_mark(self, touched: Iterable[Partition], size_bytes: int) -> None:
        assert self._journal is not None
        self.mark.touch(touched, size_bytes)
        if self._is_any_topic_behind:
            return
        # What is in flight has not been applied.
        self.mark.begin_if_due(self._journal.high_watermark)
        if self.mark.is_pending:
            self._retry_soon()
        elif self._mark_look is None and self.mark.position < self._journal.high_watermark and not self._is_closed:
            self._mark_look = self._loop.call_later(MARK_SECONDS, self._mark_in_time)

    def _mark_in_time(self) -> None:
        """Few events come: the mark follows them all the same, or retention would wait for it."""
        self._mark_look = None
        if self._journal is not None and not self._is_any_topic_behind:
            self.mark.begin_if_due(self._journal.high_watermark, bytes_min=0)
            self._move_mark((), 0)

    # --- time limits

    def _look_after(self) -> None:
        self._look = None
        now = self._loop.time()
        late = [commit for commit in self._waiting if commit.deadline <= now]
        if late:
            gone = set(map(id, late))
            self._waiting = deque(commit for commit in self._waiting if id(commit) not in gone)
            self._waiting_bytes -= sum(commit.size_bytes for commit in late)
        if self._group is not None:
            late += [commit for commit in self._group.commits if commit.deadline <= now]
        late += [commit for parts in self._behind.values() for commit, _ in parts if commit.deadline <= now]
        for commit in late:
            self._tell(commit, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the disk was not done with it in time"))
        if self._waiting or self._group is not None or self._behind:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_after)

    # --- the journal

    def _make_journal(self) -> None:
        if not self._is_making_journal:
            self._is_making_journal = True
            making = self._loop.create_task(self.topics.events_topic())
            making.add_done_callback(self._journal_made)

    def _journal_made(self, making: "asyncio.Task[Topic]") -> None:
        self._is_making_journal = False
        if making.cancelled() or making.exception() is not None:
            log.error("the event journal could not be made: %s", making)
            failed, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
            for commit in failed:
                self._tell(commit, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the event journal could not be made"))
            return
        self._journal = making.result().partitions[0]
        self._begin_soon()


def _last_mark(journal: Partition) -> int:
    """What the newest record says; 0 if it cannot be read."""
    mark = 0
    if journal.high_watermark > journal.log_start_offset:
        try:
            for batch in batches_from(journal, journal.high_watermark - 1):
                for commit in commits_in(batch):
                    mark = commit.mark
        except StorageError as error:
            log.error("the end of the event journal cannot be read: %s", error)
    return mark


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping")
