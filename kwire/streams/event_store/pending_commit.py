"""A commit on its way: what it adds to which topics, who waits for it, and how it is judged before it is written.

Commits that are written together are judged one after the other by a `Plan`: the logs as they will be when those before
have been applied.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from msgspec.structs import replace

from kwire.broker.partition import Partition, code_of
from kwire.broker.store.event_ids import EventId
from kwire.broker.store.journal import JournalPart, record_bytes_max
from kwire.broker.store.known_keys import KnownCommit, KnownKeys, Placed
from kwire.broker.topics import Topic, Topics
from kwire.errors import ErrorCode, IdempotencyConflict, KafkaError, StreamError, WrongExpectedVersion
from storage.batch import BatchHeader
from storage.errors import RecordProblem, StorageError
from storage.format import LENGTH_OVERHEAD, PLACEMENT
from storage.producers import add_sequence


class InvalidRecords(KafkaError):
    """Records that their topic's schemas refuse; nothing of the batch is stored."""

    def __init__(self, problems: Sequence[RecordProblem]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"{len(problems)} records are refused: {problems[0].message}")
        self.problems = problems


class Stored(NamedTuple):
    """Where a commit is. `parts` in its order; `position` is that of its first event, -1 if nobody knows any more.

    `names` are those of the parts' topics, as they were when it was made; of one that came before they are looked up.
    """

    position: int
    parts: Sequence[Placed]
    order: Sequence[int]
    is_repeated: bool
    append_time_ms: int = -1
    names: Sequence[str] = ()


Outcome = Stored | KafkaError | StreamError
Done = Callable[[Outcome], None]


class Part:
    """What a commit adds to one topic. `versions`: events by their place in the part, and the version before them."""

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

    def place(self, offset: int) -> None:
        """Its bytes are final then."""
        epoch = self.partition.leader_epoch
        PLACEMENT.pack_into(self.batch, 0, offset, len(self.batch) - LENGTH_OVERHEAD, epoch)
        self.header = replace(self.header, base_offset=offset, partition_leader_epoch=epoch)

    def journaled(self) -> JournalPart:
        return JournalPart(self.topic.topic_id, self.header.base_offset, self.batch)

    def placed(self) -> Placed:
        return Placed(self.topic.topic_id, self.header.base_offset, self.event_count)


class Commit:
    """`digest` says what is published under `key`. `left` counts parts that are not in their topics yet."""

    __slots__ = (
        "deadline",
        "digest",
        "done",
        "event_count",
        "is_checked",
        "is_told",
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
        self.is_told = False
        # What was found when its records were looked at.
        self.refusal: KafkaError | StreamError | None = None
        self.position = -1
        self.left = len(parts)

    def stored(self) -> Stored:
        header = self.parts[0].header
        append_time_ms = header.max_timestamp if header.timestamp_type else -1
        placed = [part.placed() for part in self.parts]
        names = [part.topic.name for part in self.parts]
        return Stored(self.position, placed, self.order, False, append_time_ms, names)


class Later(Enum):
    """It cannot be judged before the next group."""

    LATER = auto()


LATER = Later.LATER


class Plan:
    """One group of commits, as far as it has got."""

    def __init__(self, topics: Topics, keys: KnownKeys, refused: Callable[[Part], str | None]) -> None:
        """`refused` says why a topic takes nothing just now, if it does not."""
        self._topics = topics
        self._keys = keys
        self._refused = refused
        self._ends: dict[Partition, int] = {}
        # By partition and producer: the epoch and the sequence that come next.
        self._sequences: dict[tuple[Partition, int], tuple[int, int]] = {}
        self._taken_keys: set[bytes] = set()
        # Something for these waits for the next group, and so does everything behind it.
        self._blocked: set[Partition] = set()
        self.commits: list[Commit] = []
        self.size_bytes = 0
        self.event_count = 0

    def judge(self, commit: Commit) -> Outcome | Later | None:
        """None: it is part of the group, and its parts have their places."""
        if (
            not commit.is_checked
            or commit.key in self._taken_keys
            or any(part.partition in self._blocked for part in commit.parts)
        ):
            return self._put_off(commit)
        try:
            if commit.refusal is not None:
                return commit.refusal
            if commit.key is not None and (known := self._known(commit.key)) is not None:
                return _repeated(commit.key, commit.digest, known)
            ends: list[int] = []
            for part in commit.parts:
                found = self._look_at(part)
                if isinstance(found, Later):
                    return self._put_off(commit)
                if isinstance(found, Stored):
                    return found
                ends.append(found)
        except (KafkaError, StreamError) as error:
            return error
        except StorageError as error:
            return KafkaError(code_of(error), str(error))
        self._take(commit, ends)
        return None

    def _known(self, key: bytes) -> KnownCommit | None:
        """What was published under a key; nothing if all of it went with its topics: it may be published anew."""
        known = self._keys.find(key)
        if known is None or any(self._topics.catalogue.name_of(one.topic_id) is not None for one in known.parts):
            return known
        return None

    def _put_off(self, commit: Commit) -> Later:
        self._blocked.update(part.partition for part in commit.parts)
        return LATER

    def _look_at(self, part: Part) -> int | Stored | Later:
        """The offset at which it will be; or where it is, if it came before."""
        partition, header = part.partition, part.header
        if partition.is_forgotten:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {part.topic.name} was deleted")
        partition.open()
        reason = self._refused(part) or (None if partition.is_writable else "its log takes no more records")
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{part.topic.name}: {reason}")
        end = self._ends.get(partition, partition.log_end_offset)
        if header.producer_id >= 0:
            planned = self._sequences.get((partition, header.producer_id))
            if planned is None:
                repeated = partition.find_duplicate(header)
                if repeated is not None:
                    placed = Placed(part.topic.topic_id, repeated.base_offset, part.event_count)
                    return Stored(-1, [placed], (), True, repeated.append_time_ms)
            elif planned != (header.producer_epoch, header.base_sequence):
                return LATER
        for number, expected in part.versions:
            if end + number - 1 != expected:
                raise WrongExpectedVersion(part.topic.name, expected, end + number - 1)
        return end

    def _take(self, commit: Commit, ends: Sequence[int]) -> None:
        for part, end in zip(commit.parts, ends, strict=True):
            part.place(end)
            header = part.header
            self._ends[part.partition] = end + part.event_count
            if header.producer_id >= 0:
                following = add_sequence(header.base_sequence, part.event_count)
                self._sequences[part.partition, header.producer_id] = header.producer_epoch, following
        if commit.key is not None:
            self._taken_keys.add(commit.key)
        self.commits.append(commit)
        self.size_bytes += commit.size_bytes
        self.event_count += commit.event_count


def _repeated(key: bytes, digest: bytes, known: KnownCommit) -> Stored:
    if digest != known.digest:
        raise IdempotencyConflict(key.decode())
    return Stored(-1, known.parts, known.order, True)


def event_ids(stored: Stored, topics: Topics) -> list[EventId]:
    """In the order in which they were published; of a repeated commit whose topic is deleted raises KafkaError."""
    return [EventId(name, sequence - 1) for name, sequence in _sequences(stored, topics)]


def event_id_texts(stored: Stored, topics: Topics) -> list[str]:
    """The same as texts."""
    return [f"{name}-{sequence}" for name, sequence in _sequences(stored, topics)]


def _sequences(stored: Stored, topics: Topics) -> list[tuple[str, int]]:
    """The topic of each event and its number there, from 1 on."""
    names = stored.names or _names(stored.parts, topics)
    if not stored.order:
        return [
            (name, sequence)
            for name, (_, base, count) in zip(names, stored.parts, strict=True)
            for sequence in range(base + 1, base + count + 1)
        ]
    ends = [placed.base_offset for placed in stored.parts]
    found = []
    for number in stored.order:
        ends[number] += 1
        found.append((names[number], ends[number]))
    return found


def _names(parts: Sequence[Placed], topics: Topics) -> list[str]:
    names = []
    for placed in parts:
        name = topics.catalogue.name_of(placed.topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        names.append(name)
    return names
