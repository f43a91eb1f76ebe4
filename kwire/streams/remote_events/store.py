"""RemoteEventStore: the event store of a bridge. Its events and their order are on the cluster.

It is opened at the start if the bridge has event topics, and otherwise when the first one is created. Opening it fences
the process that had the journal before. That one refuses all requests from then on, until it is restarted.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kwire.broker.partition import WAIT_MS_MAX
from kwire.broker.topics.names import check_name
from kwire.clock import Clock
from kwire.errors import ErrorCode, EventStoreUnavailable, KafkaError, as_value
from kwire.kafka_client.admin import Admin
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT, CommitTooLarge
from kwire.streams.commands import CommittedEvents
from kwire.streams.event_store.drafts import DraftEncoder, EventDraft
from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.event_store.idempotency_keys import Digest, key_bytes
from kwire.streams.event_store.interface import EventStoreFacts
from kwire.streams.event_store.pending_commit import event_id_texts
from kwire.streams.log import StreamLog
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.transactions.writer import WRITER_PREFIX, TransactionalWriter
from kwire.streams.remote_events.commit_group import COMMIT_BYTES_MAX, PARTITION, CommitGroup, PendingCommit
from kwire.streams.remote_events.journal import Journal, JournalDamaged, stored_or_raise
from kwire.streams.remote_events.journal_records import JournalLog
from kwire.streams.remote_events.journal_state import Checkpoint, JournalState
from kwire.streams.remote_events.numbers import NUMBER_PLACEHOLDER
from kwire.streams.remote_events.topics import EventTopic, RemoteEventTopics
from kwire.streams.topic_directory import StreamTopic
from storage.errors import StorageError

log = logging.getLogger("kwire.bridge")

CHECKPOINT_KEY: Final = "bridge/event-journal"
JOURNAL_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "max.message.bytes": str(COMMIT_BYTES_MAX + 64 * 1024),
}
# A checkpoint is stored after this number of events, and when the bridge stops.
CHECKPOINT_EVENTS: Final = 20_000
# How long a request waits until the event store is open, and the longest pause between two attempts to open it.
OPEN_WAIT_SECONDS: Final = 30.0
OPEN_PAUSE_SECONDS_MAX: Final = 5.0
# How long a publish waits for its outcome.
COMMIT_SECONDS: Final = WAIT_MS_MAX / 1000


class DraftChecks(Protocol):
    def check_draft(self, topic: StreamTopic, draft: EventDraft) -> Awaitable[object] | None: ...


class _Opened(NamedTuple):
    journal: Journal
    positions: JournalLog


class JournalOfAnother(KafkaError):
    """The journal is not the one of this data directory. Another attempt does not help."""

    def __init__(self, problem: str) -> None:
        super().__init__(ErrorCode.INCONSISTENT_TOPIC_ID, problem)


class RemoteEventStore:
    """It implements `EventReads`, `EventCommands` and `EventTopicCommands`. Use it in the event loop's thread."""

    def __init__(self, logs: RemoteLogs, metastore: MetaStore, clock: Clock, journal_topic: str) -> None:
        """Raises ValueError if the name of the journal is not valid."""
        try:
            check_name(journal_topic)
        except KafkaError as error:
            raise ValueError(f"kwire.bridge.events.topic: {error}") from None
        self.journal_topic = journal_topic
        self._logs = logs
        self._metastore = metastore
        self._clock = clock
        self._encoder: DraftEncoder[StreamTopic] | None = None
        self._process_number = secrets.randbits(32)
        self._opened: _Opened | None = None
        self._opening: asyncio.Task[None] | None = None
        # Why the event store cannot be used until the next start.
        self._failure: EventStoreUnavailable | None = None
        # Why it could not be opened so far; empty if that was not tried.
        self._problem = ""
        self._checkpointing: asyncio.Task[None] | None = None
        self._events_since_checkpoint = 0
        self._creating = asyncio.Lock()
        self.topics: RemoteEventTopics

    def use(self, topics: RemoteEventTopics, checks: DraftChecks) -> None:
        """Set the topics, which need this object themselves, and the checks of their events."""
        self.topics = topics
        self._encoder = DraftEncoder(topics.find, checks.check_draft, NUMBER_PLACEHOLDER)

    async def start(self) -> None:
        """Open the event store if there are topics. It is tried again in the background if that fails now."""
        if len(self.topics):
            await self._try_to_open()

    async def close(self) -> None:
        """Finish the transaction that is under way, and store a checkpoint."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        opened = self._opened
        if opened is not None:
            is_failed = self._failure is not None
            await opened.journal.close()
            if not is_failed:
                await self._store_checkpoint(opened)
        await self.topics.close()

    def facts(self) -> EventStoreFacts:
        journal = None if self._opened is None else self._opened.journal
        return EventStoreFacts(
            is_open=journal is not None and self._failure is None,
            problem=self._problem,
            topics=len(self.topics),
            commits=0 if journal is None else journal.commit_count,
            events=0 if journal is None else journal.event_count,
            transactions=0 if journal is None else journal.group_count,
            waiting_commits=0 if journal is None else journal.waiting_count,
        )

    # --- opening

    def check(self) -> None:
        """Raise EventStoreUnavailable while the event store cannot be used."""
        if self._failure is not None:
            raise as_value(self._failure)
        if self._opened is None:
            raise EventStoreUnavailable(self._problem or "it is being opened")

    async def _use(self) -> _Opened:
        if self._failure is None and self._opened is None:
            await self._try_to_open()
        self.check()
        assert self._opened is not None
        return self._opened

    async def _try_to_open(self) -> None:
        """Open the event store. If the cluster cannot be reached, it is tried again in the background."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._keep_opening())
        await asyncio.wait([self._opening], timeout=OPEN_WAIT_SECONDS)

    async def _keep_opening(self) -> None:
        backoff = self._logs.cluster.backoff()
        backoff.max_seconds = OPEN_PAUSE_SECONDS_MAX
        try:
            while True:
                try:
                    await self._open()
                    return
                except (JournalDamaged, JournalOfAnother) as error:
                    self._report(str(error))
                    return
                except (KafkaError, StorageError) as error:
                    self._report(str(error))
                await asyncio.sleep(backoff.next_seconds())
        except Exception as error:
            log.exception("the event store cannot be opened")
            self._failure = EventStoreUnavailable(f"an error has ended it until this bridge is restarted: {error}")
            self._problem = str(error)
        finally:
            self._opening = None

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.error("the event store is not served: %s", problem)
            self._problem = problem

    async def _open(self) -> None:
        inner = await self._open_journal()
        checkpoint = await self._checkpoint_of(inner)
        state = JournalState(inner.topic_id, checkpoint)
        writer = TransactionalWriter(self._logs.cluster, f"{WRITER_PREFIX}events.{self.journal_topic}")
        journal = Journal(
            *(inner, writer, state, self._clock, self.topics.is_gone, self._committed, self._failed),
            self._logs.cluster.backoff,
        )
        try:
            await journal.open()
            positions = JournalLog(inner, state.position, inner.ask_bounds)
            await self.topics.open_all(state)
        except BaseException:
            await journal.close()
            raise
        state.forget_others(self.topics.ids())
        self._opened = _Opened(journal, positions)
        if self._failure is not None:
            # Another process has taken over since `journal.open`.
            self._fail_readers(self._opened, self._failure)
            return
        self._problem = ""
        log.info("the event store is open: the next global position is %d", state.position)

    async def _checkpoint_of(self, inner: RemoteLog) -> Checkpoint:
        """Return the checkpoint of the journal. The first one makes the journal that of this data directory."""
        entry = self._metastore.get(CHECKPOINT_KEY)
        if entry is not None:
            checkpoint = Checkpoint.of_value(entry.value)
            if checkpoint.journal_id != inner.topic_id:
                raise JournalOfAnother(
                    f"the topic {self.journal_topic!r} is not the one that this bridge has used: it was deleted and "
                    "created again, or the data directory belongs to another cluster"
                )
            return checkpoint
        await inner.ask_bounds(is_exact=True)
        if inner.high_watermark > 0:
            raise JournalOfAnother(
                f"the events in topic {self.journal_topic!r} belong to another bridge, whose data directory has their "
                "schemas; set kwire.bridge.events.topic to the name of another topic"
            )
        checkpoint = Checkpoint(inner.topic_id, 0, 0, 0, {})
        try:
            await self._metastore.commit([Change(CHECKPOINT_KEY, checkpoint.as_value(), ABSENT)])
        except (Conflict, CommitTooLarge) as error:
            raise StorageError(f"the use of the event journal could not be stored: {error}") from error
        return checkpoint

    async def _open_journal(self) -> RemoteLog:
        try:
            return await self._logs.open(self.journal_topic, PARTITION)
        except KafkaError as missing:
            if missing.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        if self._metastore.get(CHECKPOINT_KEY) is not None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the topic {self.journal_topic!r}, which this bridge has used, does not exist",
            )
        await self._create_journal()
        # A broker that does not know it yet is asked again by `_keep_opening`.
        return await self._logs.open(self.journal_topic, PARTITION)

    async def _create_journal(self) -> None:
        try:
            await Admin(self._logs.cluster).create_topic(self.journal_topic, 1, JOURNAL_CONFIGS)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _failed(self, failure: EventStoreUnavailable) -> None:
        """This process must not write any longer, and what others write is not known to it."""
        if self._failure is None:
            self._failure = failure
            self._report(failure.problem)
            if self._opened is not None:
                self._fail_readers(self._opened, failure)

    def _fail_readers(self, opened: _Opened, failure: EventStoreUnavailable) -> None:
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(failure))
        for topic in self.topics.opened_topics():
            topic.numbers.fail(error)
        opened.positions.fail(error)

    # --- reading

    def event_topic(self, name: str) -> EventTopic:
        return self.topics.find(name)

    async def journal(self) -> StreamLog:
        return (await self._use()).positions

    def global_reader(self, journal: StreamLog, position: int) -> GlobalReader:
        return GlobalReader(self.topics.name_of, journal, position)

    # --- publishing

    async def commit(self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None) -> CommittedEvents:
        opened, encoder = await self._use(), self._encoder
        assert encoder is not None
        key = digest = None
        if idempotency_key is not None:
            key, digest = key_bytes(idempotency_key), Digest()
        encoded = await encoder.encode(drafts, self._clock.now_ms(), self._process_number, digest)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + COMMIT_SECONDS
        digest_bytes = b"" if digest is None else digest.value()
        pending = PendingCommit(encoded.topics, encoded.order, key, digest_bytes, loop.create_future(), deadline)
        opened.journal.add(pending)
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await pending.done
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the cluster has not answered within {COMMIT_SECONDS:g} s: the events may be stored or not; send the "
                "same request again with an idempotency key",
            ) from None
        stored = stored_or_raise(outcome)
        return CommittedEvents(event_id_texts(stored, self.topics.name_of), stored.is_repeated)

    def _committed(self, group: CommitGroup, offsets: list[int]) -> None:
        assert self._opened is not None
        for (topic_id, part), offset in zip(group.parts.items(), offsets[1:], strict=True):
            topic = self.topics.opened(topic_id)
            if topic is not None:
                topic.numbers.committed(part.number, len(part.bodies), offset)
        self._opened.positions.committed(group.position, group.next_position - group.position, offsets[0])
        self._events_since_checkpoint += group.next_position - group.position
        if self._events_since_checkpoint >= CHECKPOINT_EVENTS and self._checkpointing is None:
            self._events_since_checkpoint = 0
            self._checkpointing = asyncio.get_running_loop().create_task(self._store_checkpoint(self._opened))

    async def _store_checkpoint(self, opened: _Opened) -> None:
        """Store from where the next start reads the journal. Without it, a start takes longer."""
        entry = self._metastore.get(CHECKPOINT_KEY)
        value = opened.journal.state.checkpoint().as_value()
        try:
            revision = ABSENT if entry is None else entry.revision
            await self._metastore.commit([Change(CHECKPOINT_KEY, value, revision)])
        except (StorageError, Conflict, CommitTooLarge):
            log.exception("the checkpoint of the event journal could not be stored; the next start takes longer")
        finally:
            self._checkpointing = None

    # --- topics

    async def create_event_topic(self, name: str, schemas: object, configs: Mapping[str, str] | None = None) -> None:
        opened = await self._use()
        async with self._creating:
            await self.topics.remove_gone()
            opened.journal.state.forget_others(self.topics.ids())
            await self.topics.create(name, schemas, configs)

    async def change_schemas(self, name: str, schemas: object, *, is_whole: bool) -> None:
        await self.topics.evolve(self.topics.find(name), schemas, is_whole=is_whole)
