"""JournalState: what the commits of a journal add up to. Pure.

It has the next global position, the next number of each topic, and the newest idempotency keys. A `Checkpoint` has
what is needed to get the same state from the end of the journal, so that a start does not read all of it.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Self

from kwire.streams.event_store.idempotency_keys import KEYS_JOURNAL_BYTES, IdempotencyKeys
from kwire.streams.event_store.journal import JournalCommit
from storage.batch.record_batch import parse_header

# The offsets that a checkpoint can begin at are about this far apart. A start reads KEYS_JOURNAL_BYTES and what was
# written since the last checkpoint.
MARK_BYTES: Final = 1024 * 1024


class Checkpoint(NamedTuple):
    """The topic id of a journal, and the state when `position` was the next global position.

    `known_offset` is the offset after the last batch of this state. Commits from `offset` on are read again, to find
    the idempotency keys. Numbers never fall by that.
    """

    journal_id: bytes
    offset: int
    known_offset: int
    position: int
    ends: Mapping[bytes, int]

    def as_value(self) -> dict[str, Any]:
        ends = {topic_id.hex(): end for topic_id, end in self.ends.items()}
        return {
            "journal_id": self.journal_id.hex(),
            "offset": self.offset,
            "known_offset": self.known_offset,
            "position": self.position,
            "ends": ends,
        }

    @classmethod
    def of_value(cls, value: Mapping[str, Any]) -> Self:
        ends = {bytes.fromhex(topic_id): end for topic_id, end in value["ends"].items()}
        journal_id = bytes.fromhex(value["journal_id"])
        return cls(journal_id, value["offset"], value["known_offset"], value["position"], ends)


class _Mark(NamedTuple):
    """A batch begins at `offset`. `bytes_before` is the size of all batches before it since the start."""

    offset: int
    bytes_before: int


class JournalState:
    """The state after all batches that `apply` was called with, in their order."""

    def __init__(self, journal_id: bytes, checkpoint: Checkpoint | None) -> None:
        """`checkpoint` is one of this journal."""
        used = checkpoint or Checkpoint(journal_id, 0, 0, 0, {})
        self._journal_id = journal_id
        self.keys = IdempotencyKeys()
        self.position = used.position
        self.ends = dict(used.ends)
        # The offset after the last batch that was applied, and the one up to which positions and ends are known.
        self.next_offset = used.offset
        self.known_offset = used.known_offset
        self._marks = deque((_Mark(self.next_offset, 0),))
        self._bytes = 0

    def end_of(self, topic_id: bytes) -> int:
        """Return the number of the next event of a topic."""
        return self.ends.get(topic_id, 0)

    def begin_batch(self, base_offset: int, next_offset: int, size_bytes: int) -> None:
        """The commits of this batch are applied next."""
        if self._bytes - self._marks[-1].bytes_before >= MARK_BYTES:
            self._marks.append(_Mark(base_offset, self._bytes))
            while len(self._marks) > 1 and self._bytes - self._marks[1].bytes_before >= KEYS_JOURNAL_BYTES:
                self._marks.popleft()
        self._bytes += size_bytes
        self.read_to(next_offset)

    def read_to(self, offset: int) -> None:
        """All batches before an offset were applied."""
        self.next_offset = max(self.next_offset, offset)
        self.known_offset = max(self.known_offset, offset)

    def apply(self, commit: JournalCommit) -> None:
        end = commit.position
        for part in commit.parts:
            count = parse_header(part.batch).last_offset_delta + 1
            self.raise_end(part.topic_id, part.base_offset + count)
            end += count
        self.position = max(self.position, end)
        self.keys.restore(commit)

    def raise_end(self, topic_id: bytes, end: int) -> None:
        """A topic has events up to, not including, a number."""
        self.ends[topic_id] = max(self.end_of(topic_id), end)

    def forget_others(self, topic_ids: Collection[bytes]) -> None:
        """Forget the ends of all other topics, whose entries are removed."""
        self.ends = {topic_id: end for topic_id, end in self.ends.items() if topic_id in topic_ids}

    def checkpoint(self) -> Checkpoint:
        offset = self._marks[0].offset
        return Checkpoint(self._journal_id, offset, self.known_offset, self.position, dict(self.ends))
