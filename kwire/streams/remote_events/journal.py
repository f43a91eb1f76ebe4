"""Journal: writes commits to a journal and their topics, in transactions, and reads them back after a start.

One transaction is under way at a time. Commits that arrive meanwhile share the next one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from kwire.clock import Clock
from kwire.errors import ErrorCode, EventStoreUnavailable, EventTooLarge, KafkaError, StreamError, as_value
from kwire.kafka_client.backoff import Backoff
from kwire.streams.event_store.journal import JournalCommit
from kwire.streams.event_store.pending_commit import StoredCommit
from kwire.streams.log import NotReady
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.transactions.partition_writes import BatchLate, BatchRefused, TopicGone
from kwire.streams.remote.transactions.writer import (
    OTHERS_WAIT_SECONDS,
    Fenced,
    TransactionalWriter,
    UnknownTransaction,
)
from kwire.streams.remote_events.commit_group import COMMIT_BYTES_MAX, LATER, CommitGroup, PendingCommit
from kwire.streams.remote_events.journal_records import commits_of, is_same_commit
from kwire.streams.remote_events.journal_state import JournalState
from kwire.streams.remote_events.late_topics import LateTopics
from kwire.streams.remote_events.numbered_log import batches_in
from storage.errors import StorageError

log = logging.getLogger("kwire.bridge")

# Bounds of the queue of commits that wait for a transaction.
WAITING_BYTES_MAX: Final = 128 * 1024 * 1024
WAITING_COMMITS_MAX: Final = 100_000
# How long a journal may have an open transaction after the writer has ended the one of its predecessor.
SETTLE_SECONDS: Final = 30.0
# How often a bridge that publishes nothing checks that no other one has taken over.
CHECK_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
READ_BYTES: Final = 1024 * 1024

# Called after a transaction: with the group, and the offsets of its batches, each -1 if it is not known.
Committed = Callable[[CommitGroup, list[int]], None]


class JournalDamaged(KafkaError):
    """The journal does not have the records that this process needs. Another attempt does not help."""

    def __init__(self, problem: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, problem)


class Journal:
    """Use it in the event loop's thread. `on_failed` is called once, when this process must not write any longer."""

    def __init__(
        self,
        inner: RemoteLog,
        writer: TransactionalWriter,
        state: JournalState,
        clock: Clock,
        is_gone: Callable[[bytes], bool],
        on_committed: Committed,
        on_failed: Callable[[EventStoreUnavailable], None],
        new_backoff: Callable[[], Backoff],
    ) -> None:
        self._log = inner
        self._writer = writer
        self.state = state
        self._clock = clock
        self._is_gone = is_gone
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._new_backoff = new_backoff
        self._waiting: deque[PendingCommit] = deque()
        self._waiting_bytes = 0
        self._late_topics = LateTopics()
        self._running: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._written_at = 0.0
        self._failure: KafkaError | EventStoreUnavailable | None = None
        self.group_count = 0
        self.commit_count = 0
        self.event_count = 0

    async def open(self) -> None:
        """Fence the other writers of the journal, and read what they have written. Raises KafkaError."""
        await self._writer.open()
        await self._read_new()
        self._checking = asyncio.get_running_loop().create_task(self._check_regularly())

    async def close(self) -> None:
        """Refuse what waits, and finish the transaction that is under way."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        stopping = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the bridge is stopping")
        self._failure = self._failure or stopping
        while self._waiting:
            self._take().answer(as_value(stopping))
        if self._running is not None:
            await asyncio.wait([self._running], timeout=SETTLE_SECONDS)
        await self._writer.close()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def add(self, commit: PendingCommit) -> None:
        """Queue a commit. Raises KafkaError or StreamError if it is refused at once."""
        if self._failure is not None:
            raise as_value(self._failure)
        if commit.size_bytes > COMMIT_BYTES_MAX:
            raise EventTooLarge(commit.size_bytes, COMMIT_BYTES_MAX)
        if self._waiting_bytes + commit.size_bytes > WAITING_BYTES_MAX or len(self._waiting) >= WAITING_COMMITS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many events wait for the cluster, try again")
        self._waiting.append(commit)
        self._waiting_bytes += commit.size_bytes
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            # The commits of all requests of this loop iteration share the transaction.
            await asyncio.sleep(0)
            while self._waiting and self._failure is None:
                await self._write(self._next_group())
        except Exception as error:
            log.exception("the event journal cannot be written any longer")
            self._fail(EventStoreUnavailable(f"an error has ended it until this bridge is restarted: {error}"))
        finally:
            self._running = None

    def _next_group(self) -> CommitGroup:
        now = asyncio.get_running_loop().time()
        check_late = partial(self._late_topics.check, now=now)
        group = CommitGroup(self.state, self._clock.now_ms(), self._is_gone, check_late)
        while self._waiting:
            commit = self._waiting[0]
            outcome = (
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the cluster did not store the events in time; none is stored")
                if commit.deadline < now
                else group.admit(commit)
            )
            if outcome is LATER:
                break
            self._take()
            if outcome is not None:
                commit.answer(outcome)
        return group

    def _take(self) -> PendingCommit:
        commit = self._waiting.popleft()
        self._waiting_bytes -= commit.size_bytes
        return commit

    async def _write(self, group: CommitGroup) -> None:
        if not group.commits:
            await asyncio.sleep(0)
            return
        batches = group.batches(self._log.topic, self._log.topic_id, self.state.next_offset)
        size_bytes = len(batches[0].data)
        try:
            wait_seconds = self._late_topics.wait_seconds(group.parts, OTHERS_WAIT_SECONDS)
            offsets = await self._writer.write(batches, wait_seconds)
            self._written_at = asyncio.get_running_loop().time()
        except UnknownTransaction as unknown:
            await self._find_outcome(group, unknown)
        except Fenced as fenced:
            self._answer(group, taken_over(fenced))
            self._fail(taken_over(fenced))
        except BatchRefused as refused:
            self._refuse(group, refused, {batches[number].topic_id for number in refused.numbers})
        except KafkaError as error:
            self._answer(group, error)
        else:
            self._stored(group, offsets, size_bytes)

    def _stored(self, group: CommitGroup, offsets: list[int], size_bytes: int) -> None:
        base_offset = offsets[0] if offsets[0] >= 0 else self.state.next_offset
        self.state.begin_batch(base_offset, base_offset + group.journal_records, size_bytes)
        for commit in group.journaled:
            self.state.apply(commit)
        self._finish(group, offsets)

    def _finish(self, group: CommitGroup, offsets: list[int]) -> None:
        self._late_topics.stored(group.parts)
        self.group_count += 1
        self.commit_count += len(group.commits)
        self.event_count += group.next_position - group.position
        self._on_committed(group, offsets)
        for commit, stored in zip(group.commits, group.stored, strict=True):
            commit.answer(stored)

    def _answer(self, group: CommitGroup, outcome: KafkaError | StreamError) -> None:
        for commit in group.commits:
            commit.answer(outcome)

    def _refuse(self, group: CommitGroup, refused: BatchRefused, topic_ids: set[bytes]) -> None:
        """Nothing is stored because of some topics. The commits without events of these topics are tried again."""
        error = KafkaError(refused.code, str(refused))
        is_journal = self._log.topic_id in topic_ids
        if is_journal and isinstance(refused, TopicGone):
            self._fail(EventStoreUnavailable(f"the event journal was deleted on the cluster: {refused}"))
        elif not is_journal and isinstance(refused, BatchLate):
            self._late_topics.add(topic_ids, error, asyncio.get_running_loop().time())
        others: list[PendingCommit] = []
        for commit in group.commits:
            if is_journal or any(one.topic.topic_id in topic_ids for one in commit.drafts):
                commit.answer(error)
            elif self._failure is not None:
                commit.answer(as_value(self._failure))
            else:
                others.append(commit)
        self._waiting.extendleft(reversed(others))
        self._waiting_bytes += sum(commit.size_bytes for commit in others)

    async def _find_outcome(self, group: CommitGroup, unknown: UnknownTransaction) -> None:
        """The journal tells whether a transaction was committed, unless another process writes to it by now."""
        backoff = self._new_backoff()
        while True:
            try:
                await self._writer.end_unknown()
                is_stored = await self._read_new(group.journaled[0])
                break
            except Fenced:
                self._answer(group, unknown)
                self._fail(taken_over(unknown))
                return
            except (JournalDamaged, StorageError) as error:
                self._answer(group, unknown)
                self._fail(EventStoreUnavailable(f"the event journal cannot be read: {error}"))
                return
            except KafkaError as error:
                if self._log.is_gone:
                    self._answer(group, unknown)
                    self._fail(EventStoreUnavailable(f"the event journal was deleted on the cluster: {error}"))
                    return
                log.warning("it is not known yet whether events are stored: %s", error)
                await asyncio.sleep(backoff.next_seconds())
        if is_stored:
            self._finish(group, [-1] * (1 + len(group.parts)))
        else:
            self._answer(group, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the events are not stored, try again"))

    async def _check_regularly(self) -> None:
        loop = asyncio.get_running_loop()
        while self._failure is None:
            await asyncio.sleep(CHECK_SECONDS)
            if self._running is not None or loop.time() - self._written_at < CHECK_SECONDS:
                continue
            try:
                await self._writer.check()
            except Fenced as fenced:
                self._fail(taken_over(fenced))
            except KafkaError as error:
                log.debug("it is not known whether another bridge has taken over: %s", error)

    def _fail(self, error: EventStoreUnavailable) -> None:
        if self._failure is not None:
            return
        self._failure = error
        while self._waiting:
            self._take().answer(as_value(error))
        self._on_failed(error)

    # --- reading

    async def _read_new(self, wanted: JournalCommit | None = None) -> bool:
        """Read all commits after those of the state. Returns whether `wanted` is one of them.

        The writer's own transactions have ended. Another writer may have stored commits since then.
        """
        await self._settle()
        start, needed, end = self._log.bounds().start, self.state.known_offset, self._log.committed_end
        if start > needed:
            raise JournalDamaged(
                f"the event journal {self._log.topic!r} begins at {start}, and the records from {needed} on, which are "
                "needed, were deleted on the cluster"
            )
        if needed > end:
            raise JournalDamaged(
                f"the event journal {self._log.topic!r} ends at {end}, but {needed} was reached: the cluster has lost "
                "its end"
            )
        offset, waits, is_found = max(self.state.next_offset, start), 0, False
        while offset < end:
            found = self._log.read(offset, READ_BYTES, waits)
            if isinstance(found, NotReady):
                waits += 1
                await found.wait()
                continue
            waits = 0
            for batch in batches_in(found):
                next_offset = batch.header.last_offset + 1
                self.state.begin_batch(batch.header.base_offset, next_offset, len(batch.data))
                for commit in commits_of(batch.number, batch.data):
                    self.state.apply(commit)
                    is_found = is_found or (wanted is not None and is_same_commit(commit, wanted))
            if found.next_offset <= offset:
                break
            offset = found.next_offset
            await asyncio.sleep(0)
        self.state.read_to(offset)
        return is_found

    async def _settle(self) -> None:
        """Wait until every record of the journal is committed or aborted."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        while True:
            await self._log.ask_bounds(is_exact=True)
            if self._log.committed_end >= self._log.high_watermark:
                return
            if loop.time() > deadline:
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"another process has a transaction in the event journal {self._log.topic!r}",
                )
            await asyncio.sleep(_POLL_SECONDS)


def taken_over(error: KafkaError) -> EventStoreUnavailable:
    """Return the error of a process whose journal another one has taken over."""
    return EventStoreUnavailable(f"{error}; restart this bridge to take it back")


def stored_or_raise(outcome: object) -> StoredCommit:
    if isinstance(outcome, StoredCommit):
        return outcome
    assert isinstance(outcome, Exception)
    raise outcome
