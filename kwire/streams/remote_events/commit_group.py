"""CommitGroup: the commits of one transaction, with the numbers and positions that they get. Pure.

Each commit is checked against the state that the journal will have after the earlier commits of the group.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from kwire.enum_members import fast_members
from kwire.errors import (
    ErrorCode,
    IdempotencyConflict,
    KafkaError,
    StreamError,
    WrongExpectedVersion,
)
from kwire.streams.event_store.drafts import TopicDrafts
from kwire.streams.event_store.idempotency_keys import StoredPart
from kwire.streams.event_store.journal import JournalCommit, JournalPart, record_bytes_max
from kwire.streams.event_store.pending_commit import StoredCommit
from kwire.streams.remote.transactions.writer import TransactionBatch
from kwire.streams.remote_events.journal_records import journal_body
from kwire.streams.remote_events.journal_state import JournalState
from kwire.streams.remote_events.numbers import numbered
from kwire.streams.topic_directory import StreamTopic
from storage.batch.builder import batch_bytes_max, build_batch_from_bodies

# The bounds of a group with more than one commit. Building it blocks the event loop for some milliseconds.
GROUP_BYTES_MAX: Final = 1024 * 1024
GROUP_EVENTS_MAX: Final = 5000
GROUP_COMMITS_MAX: Final = 1000
# The largest commit, as its record in the journal.
COMMIT_BYTES_MAX: Final = 16 * 1024 * 1024
# The partition of the journal and of each event topic.
PARTITION: Final = 0
_BASE_OFFSET_BYTES: Final = 8

Outcome = StoredCommit | KafkaError | StreamError
Encoded = Sequence[TopicDrafts[StreamTopic]]


class PendingCommit:
    """A commit that waits for a transaction. `done` gets its outcome."""

    __slots__ = ("deadline", "digest", "done", "drafts", "event_count", "key", "order", "size_bytes")

    def __init__(
        self,
        drafts: Encoded,
        order: Sequence[int],
        key: bytes | None,
        digest: bytes,
        done: "asyncio.Future[Outcome]",
        deadline: float,
    ) -> None:
        self.drafts = drafts
        self.order = order
        self.key = key
        self.digest = digest
        self.done = done
        self.deadline = deadline
        self.event_count = sum(len(one.bodies) for one in drafts)
        parts_bytes = sum(batch_bytes_max(sum(map(len, one.bodies)), len(one.bodies)) for one in drafts)
        self.size_bytes = record_bytes_max(parts_bytes, len(drafts), self.event_count)

    def answer(self, outcome: Outcome) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


@fast_members
class Later(Enum):
    """The type of LATER, which `CommitGroup.admit` returns for a commit that must wait for the next group."""

    LATER = auto()


LATER = Later.LATER


class PlannedPart(NamedTuple):
    """The events of one topic in a transaction, with the number of the first one."""

    topic: StreamTopic
    number: int
    bodies: list[bytes]


class CommitGroup:
    """`is_gone` tells whether the topic with an id was deleted. `check_topic` raises KafkaError if it is refused."""

    def __init__(
        self,
        state: JournalState,
        now_ms: int,
        is_gone: Callable[[bytes], bool],
        check_topic: Callable[[bytes], None],
    ) -> None:
        self._state = state
        self._now_ms = now_ms
        self._is_gone = is_gone
        self._check_topic = check_topic
        self._keys: set[bytes] = set()
        self._records: list[bytes] = []
        self.commits: list[PendingCommit] = []
        self.stored: list[StoredCommit] = []
        self.journaled: list[JournalCommit] = []
        self.parts: dict[bytes, PlannedPart] = {}
        self.position = self.next_position = state.position
        self._size_bytes = 0

    def admit(self, commit: PendingCommit) -> Outcome | Later | None:
        """Add a commit, and return None; or return its outcome if it need not be written, or LATER."""
        if commit.key is not None and commit.key in self._keys:
            return LATER
        try:
            if (repeated := self._repeated(commit)) is not None:
                return repeated
            if self.commits and self._is_full_with(commit):
                return LATER
            for drafts in commit.drafts:
                self._check(drafts)
        except (KafkaError, StreamError) as error:
            return error
        self._add(commit)
        return None

    def _repeated(self, commit: PendingCommit) -> StoredCommit | None:
        """Return where an earlier commit with the same key is stored, unless all its topics are deleted."""
        earlier = None if commit.key is None else self._state.keys.find(commit.key)
        if commit.key is None or earlier is None or all(self._is_gone(one.topic_id) for one in earlier.parts):
            return None
        if commit.digest != earlier.digest:
            raise IdempotencyConflict(commit.key.decode())
        return StoredCommit(-1, earlier.parts, earlier.order, True)

    def _is_full_with(self, commit: PendingCommit) -> bool:
        event_count = self.next_position - self.position + commit.event_count
        if (
            len(self.commits) >= GROUP_COMMITS_MAX
            or self._size_bytes + commit.size_bytes > GROUP_BYTES_MAX
            or event_count > GROUP_EVENTS_MAX
        ):
            return True
        return any(
            one.topic.topic_id in self.parts
            and _bytes_of(self.parts[one.topic.topic_id].bodies + one.bodies) > one.topic.max_message_bytes
            for one in commit.drafts
        )

    def _check(self, drafts: TopicDrafts[StreamTopic]) -> None:
        topic = drafts.topic
        if self._is_gone(topic.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} was deleted")
        self._check_topic(topic.topic_id)
        drafts.check_size()
        end = self._end_of(topic.topic_id)
        for index, expected in drafts.versions:
            if end + index - 1 != expected:
                raise WrongExpectedVersion(topic.name, expected, end + index - 1)

    def _end_of(self, topic_id: bytes) -> int:
        planned = self.parts.get(topic_id)
        return self._state.end_of(topic_id) if planned is None else planned.number + len(planned.bodies)

    def _add(self, commit: PendingCommit) -> None:
        journal_parts: list[JournalPart] = []
        for drafts in commit.drafts:
            topic_id = drafts.topic.topic_id
            number = self._end_of(topic_id)
            bodies = numbered(drafts.bodies, number)
            planned = self.parts.get(topic_id)
            if planned is None:
                self.parts[topic_id] = PlannedPart(drafts.topic, number, bodies)
            else:
                planned.bodies.extend(bodies)
            batch, _ = build_batch_from_bodies(bodies, self._now_ms)
            batch[:_BASE_OFFSET_BYTES] = number.to_bytes(_BASE_OFFSET_BYTES)
            journal_parts.append(JournalPart(topic_id, number, batch))
        key = None if commit.key is None else commit.digest + commit.key
        self._records += numbered([journal_body(journal_parts, commit.order, key)], self.next_position)
        self.journaled.append(JournalCommit(self.next_position, 0, journal_parts, commit.order, key))
        stored = [
            StoredPart(part.topic_id, part.base_offset, len(drafts.bodies))
            for part, drafts in zip(journal_parts, commit.drafts, strict=True)
        ]
        names = [drafts.topic.name for drafts in commit.drafts]
        self.stored.append(StoredCommit(self.next_position, stored, commit.order, False, names=names))
        self.commits.append(commit)
        self._size_bytes += commit.size_bytes
        self.next_position += commit.event_count
        if commit.key is not None:
            self._keys.add(commit.key)

    def batches(self, journal: str, journal_id: bytes, journal_offset_min: int) -> list[TransactionBatch]:
        """Return the batch of the journal and, in the order of `parts`, one of each topic."""
        records, _ = build_batch_from_bodies(self._records, self._now_ms)
        batches = [TransactionBatch(journal, journal_id, PARTITION, records, journal_offset_min)]
        for topic_id, part in self.parts.items():
            batch, _ = build_batch_from_bodies(part.bodies, self._now_ms)
            # Markers take offsets, so an offset is never below the number.
            batches.append(TransactionBatch(part.topic.name, topic_id, PARTITION, batch, part.number))
        return batches

    @property
    def journal_records(self) -> int:
        return len(self._records)


def _bytes_of(bodies: Sequence[bytes]) -> int:
    return batch_bytes_max(sum(map(len, bodies)), len(bodies))
