"""The commit pipeline: commits are written to the event journal in groups, synced, and then applied to their topics.

One group is in flight at a time. Commits that arrive meanwhile form the next group. Many writers thus share one sync,
and each commit is checked against the current state of the logs. docs/decisions/0013-event-journal.md has the reasons.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition import NEVER_MS, WAIT_MS_MAX, Partition, Syncs, code_of
from kwire.broker.topics.topics import EVENTS_TOPIC, Topic, Topics
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from kwire.streams.event_store.idempotency_keys import KEYS_JOURNAL_BYTES, IdempotencyKeys, KeyedCommit
from kwire.streams.event_store.journal import (
    COMMIT_BYTES_MAX,
    NewRecord,
    batches_from,
    commits_in,
    encode_value,
    journal_batch,
    last_batches,
)
from kwire.streams.event_store.pending_commit import DEFERRED, Commit, CommitGroup, Done, InvalidRecords, Outcome, Part
from kwire.streams.event_store.recovery import recover_topics
from kwire.streams.event_store.sync_checkpoint import SyncCheckpoint
from storage.batch.record_batch import BatchHeader
from storage.errors import RecordProblem, StorageError

log = logging.getLogger("kwire.broker")

# The key of the sync checkpoint (`sync_checkpoint.py`) in the metadata store. A clean stop stores the checkpoint there.
CHECKPOINT_KEY = "events/mark"
# Bounds of a group with more than one commit. Writing such a group blocks the event loop for a few milliseconds.
GROUP_BYTES_MAX = 4 * 1024 * 1024
GROUP_EVENTS_MAX = 20_000
GROUP_COMMITS_MAX = 2000
# Bounds of the queue of commits that wait for a group.
WAITING_BYTES_MAX = 128 * 1024 * 1024
WAITING_COMMITS_MAX = 100_000
# Interval of the check for commits that have passed their deadline.
DEADLINE_CHECK_SECONDS = 1.0
# Pause before an append that failed is retried, and between checks of pending checkpoint syncs.
RETRY_SECONDS = 0.5
# While events arrive, the syncs that advance the checkpoint are requested at least this often.
CHECKPOINT_SECONDS = 30.0
# Longest time that `close` waits for the disk.
CLOSE_SECONDS = 30.0
CLOSE_POLL_SECONDS = 0.01

# The records of a batch that violate the schemas of the topic, or a future if the check takes longer.
CheckedBatch: TypeAlias = "Sequence[RecordProblem] | asyncio.Future[Sequence[RecordProblem]]"


class CommitPipeline:
    """Writes commits to the event journal and applies them to their topics. Use it only in the event loop's thread.

    `open` must return before event topics are read. `close` must be the last call.
    """

    def __init__(self, topics: Topics, metastore: MetaStore, clock: Clock, syncs: Syncs) -> None:
        self.topics = topics
        self.clock = clock
        self.keys = IdempotencyKeys()
        self.checkpoint = SyncCheckpoint(syncs, 0)
        self._metastore = metastore
        self._syncs = syncs
        self._journal: Partition | None = None
        self._is_creating_journal = False
        self._is_group_scheduled = False
        self._is_closed = False
        # If this is not None, all commits are refused for this reason until the next start.
        self._failure: str | None = None
        self._waiting: deque[Commit] = deque()
        self._waiting_bytes = 0
        self._group: CommitGroup | None = None
        # Parts that are in the journal but could not be appended to their topics. A topic accepts no commits until all
        # its parts are appended.
        self._unapplied: dict[Partition, deque[tuple[Commit, Part]]] = {}
        # By topic id: why the topic lacks events of the journal or differs from the journal. Such a topic accepts no
        # commits.
        self._incomplete: dict[bytes, str] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self.group_count = 0
        self.commit_count = 0
        self.event_count = 0
        self.recovered_count = 0
        topics.retained_from[EVENTS_TOPIC] = lambda: self.checkpoint.position

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    # --- start and stop

    async def open(self) -> None:
        """Append the events that are only in the journal to their topics.

        If the journal cannot be read, all commits are refused until the next start.
        """
        if self.topics.get(EVENTS_TOPIC) is None:
            return
        try:
            await self._open()
        except (StorageError, KafkaError) as error:
            log.critical("the event journal cannot be used; events are refused until the next start: %s", error)
            self._failure = str(error)

    async def _open(self) -> None:
        journal = self._journal = (await self.topics.events_topic()).partitions[0]
        end = journal.log_end_offset
        if journal.high_watermark < end and journal.is_writable:
            # The previous process was killed before it synced the last commits of the journal. This sync commits them.
            await self._wait_until_synced(journal, end)
        self.checkpoint = SyncCheckpoint(self._syncs, await self._stored_checkpoint(journal))
        if self.checkpoint.position < journal.high_watermark:
            self.recovered_count, self._incomplete = await recover_topics(
                self.topics, journal, self.checkpoint.position
            )
            # The recovered events may not be on disk yet: the next checkpoint must sync their topics.
            self.checkpoint.touch((one for one in tuple(self.topics.open_partitions) if one.settings.is_event_topic), 0)
        self.keys.read_back(last_batches(journal, KEYS_JOURNAL_BYTES))

    async def _stored_checkpoint(self, journal: Partition) -> int:
        """Return the checkpoint stored at the last stop or in the newest record, whichever is higher.

        A checkpoint beyond the end of the journal belongs to an earlier journal, whose files are gone. It is replaced
        by 0, because it would look valid as soon as the new journal has reached that position.
        """
        entry = self._metastore.get(CHECKPOINT_KEY)
        stored = entry.value["position"] if entry is not None else 0
        if entry is not None and stored > journal.high_watermark:
            log.error("the event journal ends at %d, but its checkpoint is %d", journal.high_watermark, stored)
            stored = 0
            await self._metastore.commit([Change(CHECKPOINT_KEY, {"position": stored}, entry.revision)])
        return max(stored, min(_newest_checkpoint(journal), journal.high_watermark))

    async def _wait_until_synced(self, journal: Partition, end: int) -> None:
        reached: asyncio.Future[KafkaError | None] = self._loop.create_future()
        journal.on_reached(end, lambda error: None if reached.done() else reached.set_result(error))
        error = await reached
        if error is not None:
            raise StorageError(f"the event journal cannot be synced: {error}")

    async def close(self) -> None:
        """Write the waiting commits, sync all topics, and store the checkpoint, so the next start needs no recovery.

        Commits that still wait after CLOSE_SECONDS are refused.
        """
        deadline = self._loop.time() + CLOSE_SECONDS
        while (self._waiting or self._group is not None) and self._loop.time() < deadline:
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        self._is_closed = True
        for commit in self._waiting:
            self._answer(commit, _stopping())
        self._waiting.clear()
        for timer in (self._deadline_timer, self._retry_timer, self._checkpoint_timer):
            if timer is not None:
                timer.cancel()
        journal = self._journal
        if journal is None or self._group is not None or self._failure is not None or self._is_any_topic_incomplete:
            return
        end = journal.high_watermark
        while self.checkpoint.position < end and not self.checkpoint.is_stuck and self._loop.time() < deadline:
            self.checkpoint.request_syncs_if_due(end, bytes_min=0)
            self.checkpoint.advance()
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        if self.checkpoint.position < end:
            return
        entry = self._metastore.get(CHECKPOINT_KEY)
        if entry is not None and entry.value["position"] == end:
            return
        try:
            revision = entry.revision if entry is not None else ABSENT
            await self._metastore.commit([Change(CHECKPOINT_KEY, {"position": end}, revision)])
        except (StorageError, Conflict):
            log.exception("the sync checkpoint could not be stored; the next start recovers from the journal")

    # --- new commits

    def add(self, commit: Commit, checked: "asyncio.Future[Sequence[RecordProblem]] | None" = None) -> None:
        """Queue a commit. Its `done` is called once, after this method has returned.

        `checked` is a check of the records that has not finished yet. Raises KafkaError if the commit is too large, the
        queue is full, the journal cannot be used, or the pipeline is closed.
        """
        if self._is_closed:
            raise _stopping()
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the event journal cannot be used: {self._failure}")
        if commit.size_bytes > COMMIT_BYTES_MAX:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the commit has {commit.size_bytes} bytes, at most {COMMIT_BYTES_MAX} are allowed",
            )
        if self._waiting_bytes + commit.size_bytes > WAITING_BYTES_MAX or len(self._waiting) >= WAITING_COMMITS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many events wait for the disk, try again")
        if checked is not None:
            commit.is_checked = False
            checked.add_done_callback(lambda done: self._on_checked(commit, done))
        self._waiting.append(commit)
        self._waiting_bytes += commit.size_bytes
        self._schedule_group()
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(DEADLINE_CHECK_SECONDS, self._expire_commits)

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
        """Queue a copy of a Kafka producer's batch.

        Raises KafkaError or StorageError for problems that are found before the batch is queued. `done` is called with
        the outcome later.
        """
        if header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_RECORD, "Topics of the event store do not accept transactional records.")
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

    def _on_checked(self, commit: Commit, done: "asyncio.Future[Sequence[RecordProblem]]") -> None:
        commit.is_checked = True
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if isinstance(error, KafkaError | StreamError):
            commit.refusal = error
        elif error is not None:
            # The error code is a retriable one, because the records may be valid.
            log.error("records of topic %s could not be checked: %r", commit.parts[0].topic.name, error)
            commit.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the records could not be checked")
        elif problems := done.result():
            commit.refusal = InvalidRecords(problems)
        self._schedule_group()

    # --- groups

    def _schedule_group(self) -> None:
        if not self._is_group_scheduled and self._group is None:
            self._is_group_scheduled = True
            self._loop.call_soon(self._start_group)

    def _start_group(self) -> None:
        """Form a group of the waiting commits and write it.

        `_schedule_group` defers this call with `call_soon`, so that all requests of one loop iteration can be in the
        same group.
        """
        self._is_group_scheduled = False
        if self._group is not None or not self._waiting:
            return
        if self._journal is None:
            self._create_journal()
            return
        group = CommitGroup(self.topics, self.keys, self._unavailable_reason)
        answered = self._fill(group)
        if group.commits:
            self._write(group, self._journal)
        for commit, outcome in answered:
            self._answer(commit, outcome)
        if len(answered) >= GROUP_COMMITS_MAX:
            self._schedule_group()

    def _fill(self, group: CommitGroup) -> list[tuple[Commit, Outcome]]:
        """Move commits from the queue to the group, in order.

        Returns the commits that are not written, because they are refused or were stored before, with their outcomes.
        """
        answered: list[tuple[Commit, Outcome]] = []
        deferred: list[Commit] = []
        waiting = self._waiting
        while waiting and max(len(group.commits), len(deferred), len(answered)) < GROUP_COMMITS_MAX:
            commit = waiting[0]
            if group.commits and (
                group.size_bytes + commit.size_bytes > GROUP_BYTES_MAX
                or group.event_count + commit.event_count > GROUP_EVENTS_MAX
            ):
                break
            waiting.popleft()
            outcome = group.admit(commit)
            if outcome is DEFERRED:
                deferred.append(commit)
                continue
            self._waiting_bytes -= commit.size_bytes
            if outcome is not None:
                answered.append((commit, outcome))
        waiting.extendleft(reversed(deferred))
        return answered

    def _unavailable_reason(self, part: Part) -> str | None:
        if part.partition in self._unapplied:
            return "earlier committed events could not be written to the topic yet"
        return self._incomplete.get(part.topic.topic_id)

    @property
    def _is_any_topic_incomplete(self) -> bool:
        """Whether a topic lacks events that are in the journal.

        While this is True, the checkpoint must not advance. The next start recovers only events from the checkpoint on.
        If the missing events were below the checkpoint, they would stay missing, and the topic would accept new events.
        """
        if self._incomplete:
            name_of = self.topics.catalogue.name_of
            self._incomplete = {one: reason for one, reason in self._incomplete.items() if name_of(one) is not None}
        return bool(self._unapplied or self._incomplete)

    def _write(self, group: CommitGroup, journal: Partition) -> None:
        checkpoint = self.checkpoint.position
        records = [
            NewRecord(
                commit.event_count,
                None if commit.key is None else commit.digest + commit.key,
                encode_value(checkpoint, [part.journal_part() for part in commit.parts], commit.order),
            )
            for commit in group.commits
        ]
        try:
            appended = journal.append(*journal_batch(records, self.clock.now_ms()))
        except (StorageError, KafkaError) as error:
            refusal = error if isinstance(error, KafkaError) else KafkaError(code_of(error), str(error))
            self._fail(group, refusal)
            return
        position = appended.base_offset
        for commit in group.commits:
            commit.position = position
            position += commit.event_count
        self._group = group
        # The wait has no timeout, although commits have deadlines: until the sync returns, it is unknown whether the
        # group is stored.
        journal.on_reached(appended.last_offset + 1, self._on_journal_synced, NEVER_MS)

    def _fail(self, group: CommitGroup, error: KafkaError) -> None:
        for commit in group.commits:
            self._answer(commit, error)
        if self._waiting:
            self._schedule_group()

    def _on_journal_synced(self, error: KafkaError | None) -> None:
        """Apply the group in flight to its topics, or refuse its commits if the sync failed with `error`."""
        group, self._group = self._group, None
        assert group is not None
        if error is not None:
            self._fail(group, error)
            return
        # All events of the group are appended before any of them becomes visible.
        touched: dict[Partition, None] = {}
        for commit in group.commits:
            for part in commit.parts:
                if self._apply(commit, part):
                    touched[part.partition] = None
        self.group_count += 1
        self.commit_count += len(group.commits)
        self.event_count += group.event_count
        for commit in group.commits:
            if commit.key is not None:
                stored_part = [part.stored_part() for part in commit.parts]
                self.keys.add(commit.key, KeyedCommit(commit.digest, stored_part, commit.order))
        self._make_visible(touched)
        for commit in group.commits:
            if not commit.left:
                self._answer(commit, commit.stored())
        self._advance_checkpoint(touched, group.size_bytes)
        if self._waiting:
            self._schedule_group()

    def _apply(self, commit: Commit, part: Part) -> bool:
        partition = part.partition
        if partition in self._unapplied:
            self._unapplied[partition].append((commit, part))
            return False
        if partition.is_forgotten:  # the topic was deleted after the commit was added to the group
            commit.left -= 1
            return False
        try:
            self._append(part)
        except (StorageError, KafkaError) as error:
            log.error("committed events cannot be written to topic %s yet: %s", part.topic.name, error)
            self._unapplied[partition] = deque([(commit, part)])
            self._retry_soon()
            return False
        commit.left -= 1
        return True

    def _append(self, part: Part) -> None:
        if (reason := self._incomplete.get(part.topic.topic_id)) is not None:
            raise StorageError(f"topic {part.topic.name}: {reason}")
        appended = part.partition.append_journaled(part.batch, part.header, part.now_ms)
        if appended.is_duplicate or appended.base_offset != part.header.base_offset:
            # This should never happen. A topic that differs from the journal must not accept more events, and a retry
            # would append the batch again.
            self._incomplete[part.topic.topic_id] = "the topic differs from the event journal"
            log.critical(
                "topic %s accepts no more events: the batch for offset %d was appended at %d",
                *(part.topic.name, part.header.base_offset, appended.base_offset),
            )
            raise StorageError(f"topic {part.topic.name} differs from the event journal")

    def _make_visible(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            try:
                partition.commit_all()
            except Exception:  # the readers of the other topics must still be notified
                log.exception("readers of topic %s could not be notified", partition.topic_name)

    def _answer(self, commit: Commit, outcome: Outcome) -> None:
        if commit.is_answered:
            return
        commit.is_answered = True
        try:
            commit.done(outcome)
        except Exception:  # the other commits of the group must still be answered
            log.exception("the outcome of a commit could not be delivered to its caller")

    # --- parts that could not be applied

    def _retry_soon(self) -> None:
        if self._retry_timer is None and not self._is_closed:
            self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry_unapplied)

    def _retry_unapplied(self) -> None:
        self._retry_timer = None
        for partition, parts in list(self._unapplied.items()):
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
                pass  # `_apply` has logged the error, and the commits are answered when their deadlines pass
            else:
                del self._unapplied[partition]
                log.warning("committed events have been written to topic %s", partition.topic_name)
            if done and not partition.is_forgotten:
                self.checkpoint.touch([partition], 0)
                self._make_visible([partition])
            for commit in done:
                if not commit.left:
                    self._answer(commit, commit.stored())
        self._advance_checkpoint((), 0)
        if self._unapplied:
            self._retry_soon()

    def _advance_checkpoint(self, touched: Iterable[Partition], size_bytes: int) -> None:
        assert self._journal is not None
        self.checkpoint.touch(touched, size_bytes)
        if self._is_any_topic_incomplete:
            return
        # All events below the high watermark are in their topics. A group in flight is above the high watermark.
        self.checkpoint.request_syncs_if_due(self._journal.high_watermark)
        if self.checkpoint.is_pending:
            self._retry_soon()
        elif (
            self._checkpoint_timer is None
            and self.checkpoint.position < self._journal.high_watermark
            and not self._is_closed
        ):
            self._checkpoint_timer = self._loop.call_later(CHECKPOINT_SECONDS, self._advance_idle_checkpoint)

    def _advance_idle_checkpoint(self) -> None:
        """Request the syncs that advance the checkpoint, even if few events have arrived.

        Retention of the journal deletes only records below the checkpoint.
        """
        self._checkpoint_timer = None
        if self._journal is not None and not self._is_any_topic_incomplete:
            self.checkpoint.request_syncs_if_due(self._journal.high_watermark, bytes_min=0)
            self._advance_checkpoint((), 0)

    # --- time limits

    def _expire_commits(self) -> None:
        self._deadline_timer = None
        now = self._loop.time()
        late = [commit for commit in self._waiting if commit.deadline <= now]
        if late:
            gone = set(map(id, late))
            self._waiting = deque(commit for commit in self._waiting if id(commit) not in gone)
            self._waiting_bytes -= sum(commit.size_bytes for commit in late)
        if self._group is not None:
            late += [commit for commit in self._group.commits if commit.deadline <= now]
        late += [commit for parts in self._unapplied.values() for commit, _ in parts if commit.deadline <= now]
        for commit in late:
            self._answer(commit, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the events were not written in time"))
        if self._waiting or self._group is not None or self._unapplied:
            self._deadline_timer = self._loop.call_later(DEADLINE_CHECK_SECONDS, self._expire_commits)

    # --- the journal

    def _create_journal(self) -> None:
        if not self._is_creating_journal:
            self._is_creating_journal = True
            creation = self._loop.create_task(self.topics.events_topic())
            creation.add_done_callback(self._on_journal_created)

    def _on_journal_created(self, creation: "asyncio.Task[Topic]") -> None:
        self._is_creating_journal = False
        if creation.cancelled() or creation.exception() is not None:
            log.error("the event journal could not be created: %s", creation)
            failed, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
            for commit in failed:
                self._answer(
                    commit, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the event journal could not be created")
                )
            return
        self._journal = creation.result().partitions[0]
        self._schedule_group()


def _newest_checkpoint(journal: Partition) -> int:
    """Return the checkpoint in the newest record of the journal; 0 if there is no record or it cannot be read."""
    checkpoint = 0
    if journal.high_watermark > journal.log_start_offset:
        try:
            for batch in batches_from(journal, journal.high_watermark - 1):
                for commit in commits_in(batch):
                    checkpoint = commit.checkpoint
        except StorageError as error:
            log.error("the end of the event journal cannot be read: %s", error)
    return checkpoint


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping")
