"""Commits that wait to be written to the event journal, and groups of commits that are written in one batch.

A group checks each commit against the state that the logs will have after the earlier commits of the group are applied.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from msgspec.structs import replace

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics.topics import Topic, Topics
from kwire.enum_members import fast_members
from kwire.errors import ErrorCode, IdempotencyConflict, KafkaError, StreamError, WrongExpectedVersion
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.event_store.idempotency_keys import IdempotencyKeys, KeyedCommit, StoredPart
from kwire.streams.event_store.journal import JournalPart, record_bytes_max
from storage.batch.format import LENGTH_OVERHEAD, PLACEMENT
from storage.batch.record_batch import BatchHeader
from storage.errors import RecordProblem, StorageError
from storage.log.producers import add_sequence


class InvalidRecords(KafkaError):
    """Records of a batch violate the schemas of their topic. No record of the batch is stored."""

    def __init__(self, problems: Sequence[RecordProblem]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"{len(problems)} records are invalid: {problems[0].message}")
        self.problems = problems


class StoredCommit(NamedTuple):
    """Where a commit is stored.

    `position` is the global position of the first event, or -1 if it is not known. `is_repeated` is True if an earlier
    request has stored the commit. `names` has the topic name of each part. It is empty for a repeated commit, whose
    topic names are looked up by topic id.
    """

    position: int
    parts: Sequence[StoredPart]
    order: Sequence[int]
    is_repeated: bool
    append_time_ms: int = -1
    names: Sequence[str] = ()


Outcome = StoredCommit | KafkaError | StreamError
Done = Callable[[Outcome], None]
# Returns the name of a topic by its id; None if it is deleted.
NameOf = Callable[[bytes], str | None]


class Part:
    """The batch that a commit adds to one topic.

    `versions` contains a pair for each event with an expected version: the event's index in the batch, and the version.
    """

    __slots__ = ("batch", "header", "now_ms", "partition", "topic", "versions")

    def __init__(
        self,
        topic: Topic,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        versions: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.topic = topic
        self.partition = topic.partitions[0]
        self.batch = batch
        self.header = header
        self.now_ms = now_ms
        self.versions = versions

    @property
    def event_count(self) -> int:
        return self.header.last_offset_delta + 1

    def assign_offset(self, offset: int) -> None:
        """Set the base offset and the leader epoch of the batch. This is the last change of its bytes."""
        epoch = self.partition.leader_epoch
        PLACEMENT.pack_into(self.batch, 0, offset, len(self.batch) - LENGTH_OVERHEAD, epoch)
        self.header = replace(self.header, base_offset=offset, partition_leader_epoch=epoch)

    def journal_part(self) -> JournalPart:
        return JournalPart(self.topic.topic_id, self.header.base_offset, self.batch)

    def stored_part(self) -> StoredPart:
        return StoredPart(self.topic.topic_id, self.header.base_offset, self.event_count)


class Commit:
    """A commit that waits to be written, or that is being written and applied.

    `digest` is the hash of the events published under the idempotency key `key`. `left` is the number of parts that
    have not been appended to their topics yet.
    """

    __slots__ = (
        "deadline",
        "digest",
        "done",
        "event_count",
        "is_answered",
        "is_checked",
        "key",
        "left",
        "order",
        "parts",
        "position",
        "refusal",
        "size_bytes",
    )

    def __init__(
        self,
        parts: Sequence[Part],
        done: Done,
        deadline: float,
        order: Sequence[int] = (),
        key: bytes | None = None,
        digest: bytes = b"",
    ) -> None:
        self.parts = parts
        self.done = done
        self.deadline = deadline
        self.order = order
        self.key = key
        self.digest = digest
        self.event_count = sum(part.event_count for part in parts)
        self.size_bytes = record_bytes_max(sum(len(part.batch) for part in parts), len(parts), self.event_count)
        self.is_checked = True
        self.is_answered = False
        # The error if the records violate the schemas or could not be checked.
        self.refusal: KafkaError | StreamError | None = None
        self.position = -1
        self.left = len(parts)

    def stored(self) -> StoredCommit:
        header = self.parts[0].header
        append_time_ms = header.max_timestamp if header.timestamp_type else -1
        parts = [part.stored_part() for part in self.parts]
        names = [part.topic.name for part in self.parts]
        return StoredCommit(self.position, parts, self.order, False, append_time_ms, names)


@fast_members
class Deferred(Enum):
    """The type of DEFERRED, which `CommitGroup.admit` returns for a commit that must wait for the next group."""

    DEFERRED = auto()


DEFERRED = Deferred.DEFERRED


class CommitGroup:
    """A group of commits that are written to the journal in one batch."""

    def __init__(self, topics: Topics, keys: IdempotencyKeys, unavailable_reason: Callable[[Part], str | None]) -> None:
        """Create an empty group. `unavailable_reason` returns why a topic accepts no events at present, or None."""
        self._topics = topics
        self._keys = keys
        self._unavailable_reason = unavailable_reason
        self._ends: dict[Partition, int] = {}
        # By partition and producer id: the producer's epoch in this group, and its next sequence number.
        self._sequences: dict[tuple[Partition, int], tuple[int, int]] = {}
        self._keys_in_group: set[bytes] = set()
        # Partitions with a deferred commit. Later commits to these partitions are deferred too, to keep their order.
        self._blocked: set[Partition] = set()
        self.commits: list[Commit] = []
        self.size_bytes = 0
        self.event_count = 0

    def admit(self, commit: Commit) -> Outcome | Deferred | None:
        """Add a commit to the group, assign offsets to its parts, and return None.

        If the commit need not be written, because it is refused or was stored before, return its outcome. If it must
        wait for the next group, return DEFERRED.
        """
        if (
            not commit.is_checked
            or commit.key in self._keys_in_group
            or any(part.partition in self._blocked for part in commit.parts)
        ):
            return self._defer(commit)
        try:
            if commit.refusal is not None:
                return commit.refusal
            if commit.key is not None and (earlier := self._keyed_commit(commit.key)) is not None:
                return _repeated_result(commit.key, commit.digest, earlier)
            ends: list[int] = []
            for part in commit.parts:
                found = self._check_part(part)
                if isinstance(found, Deferred):
                    return self._defer(commit)
                if isinstance(found, StoredCommit):
                    return found
                ends.append(found)
        except (KafkaError, StreamError) as error:
            return error
        except StorageError as error:
            return KafkaError(code_of(error), str(error))
        self._add(commit, ends)
        return None

    def _keyed_commit(self, key: bytes) -> KeyedCommit | None:
        """Return the commit stored under a key, or None.

        Returns None also if all topics of that commit are deleted, so the key can be used again.
        """
        earlier = self._keys.find(key)
        if earlier is None or any(self._topics.catalogue.name_of(one.topic_id) is not None for one in earlier.parts):
            return earlier
        return None

    def _defer(self, commit: Commit) -> Deferred:
        self._blocked.update(part.partition for part in commit.parts)
        return DEFERRED

    def _check_part(self, part: Part) -> int | StoredCommit | Deferred:
        """Return the offset that a part will get.

        If the producer has sent the batch before, return where it is stored. If the epoch or the sequence number of the
        batch does not continue the producer's batches in this group, return DEFERRED.
        """
        partition, header = part.partition, part.header
        if partition.is_forgotten:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {part.topic.name} was deleted")
        partition.open()
        reason = self._unavailable_reason(part) or (None if partition.is_writable else "its log cannot be written to")
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {part.topic.name}: {reason}")
        end = self._ends.get(partition, partition.log_end_offset)
        if header.producer_id >= 0:
            planned = self._sequences.get((partition, header.producer_id))
            if planned is None:
                repeated = partition.find_duplicate(header)
                if repeated is not None:
                    stored_part = StoredPart(part.topic.topic_id, repeated.base_offset, part.event_count)
                    return StoredCommit(-1, [stored_part], (), True, repeated.append_time_ms)
            elif planned != (header.producer_epoch, header.base_sequence):
                return DEFERRED
        for number, expected in part.versions:
            if end + number - 1 != expected:
                raise WrongExpectedVersion(part.topic.name, expected, end + number - 1)
        return end

    def _add(self, commit: Commit, ends: Sequence[int]) -> None:
        for part, end in zip(commit.parts, ends, strict=True):
            part.assign_offset(end)
            header = part.header
            self._ends[part.partition] = end + part.event_count
            if header.producer_id >= 0:
                following = add_sequence(header.base_sequence, part.event_count)
                self._sequences[part.partition, header.producer_id] = header.producer_epoch, following
        if commit.key is not None:
            self._keys_in_group.add(commit.key)
        self.commits.append(commit)
        self.size_bytes += commit.size_bytes
        self.event_count += commit.event_count


def _repeated_result(key: bytes, digest: bytes, earlier: KeyedCommit) -> StoredCommit:
    if digest != earlier.digest:
        raise IdempotencyConflict(key.decode())
    return StoredCommit(-1, earlier.parts, earlier.order, True)


def event_ids(stored: StoredCommit, name_of: NameOf) -> list[EventId]:
    """Return the event ids in publishing order; raises KafkaError if the topic of a repeated commit is deleted."""
    return [EventId(name, sequence - 1) for name, sequence in _sequences(stored, name_of)]


def event_id_texts(stored: StoredCommit, name_of: NameOf) -> list[str]:
    """Return the ids that `event_ids` returns, as strings."""
    return [f"{name}-{sequence}" for name, sequence in _sequences(stored, name_of)]


def _sequences(stored: StoredCommit, name_of: NameOf) -> list[tuple[str, int]]:
    """Return the topic name of each event, and the number of the event in that topic. Numbers start at 1."""
    names = stored.names or _names(stored.parts, name_of)
    if not stored.order:
        return [
            (name, sequence)
            for name, (_, base, count) in zip(names, stored.parts, strict=True)
            for sequence in range(base + 1, base + count + 1)
        ]
    ends = [part.base_offset for part in stored.parts]
    found = []
    for number in stored.order:
        ends[number] += 1
        found.append((names[number], ends[number]))
    return found


def _names(parts: Sequence[StoredPart], name_of: NameOf) -> list[str]:
    names = []
    for part in parts:
        name = name_of(part.topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        names.append(name)
    return names
