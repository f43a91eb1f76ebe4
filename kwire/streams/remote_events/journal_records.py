"""The journal of an event store on a cluster: one record for each commit, in one topic of one partition.

A record has the key and the value of a record of the server's own journal (`event_store/journal.py`): the parts of the
commit with their batches, the order of its events, and its idempotency key. Its header has the global position of the
first event. In the server's own journal a record takes one offset for each event; on a cluster it takes one. So
`JournalLog` shows the batches with positions as offsets, and all readers of the server's journal can read them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kwire.streams.event_store.journal import (
    BATCH_BYTES_MAX,
    JournalCommit,
    JournalPart,
    NewRecord,
    decode_value,
    encode_value,
    journal_batch,
)
from kwire.streams.remote_events.numbered_log import NumberedBatch, NumberedLog
from kwire.streams.remote_events.numbers import NUMBER_PLACEHOLDER
from storage.batch.builder import encode_record_body
from storage.batch.record_batch import parse_header, read_records
from storage.errors import CorruptBatch

_NO_CHECKPOINT: Final = 0


def journal_body(parts: Sequence[JournalPart], order: Sequence[int], key: bytes | None) -> bytes:
    """Encode a commit as a record without its position (`numbers.numbered`)."""
    return encode_record_body(key, encode_value(_NO_CHECKPOINT, parts, order), 1, NUMBER_PLACEHOLDER)


def event_count_of(parts: Sequence[JournalPart]) -> int:
    return sum(parse_header(part.batch).last_offset_delta + 1 for part in parts)


def commits_of(number: int, data: memoryview) -> Iterator[JournalCommit]:
    """Yield the commits of a batch whose first commit begins at the position `number`. Raises CorruptBatch."""
    position = number
    for record in read_records(data, BATCH_BYTES_MAX):
        if record.value is None:
            raise CorruptBatch("a record of the event journal has no value")
        commit = decode_value(position, record.key, record.value)
        yield commit
        position += event_count_of(commit.parts)


def is_same_commit(one: JournalCommit, other: JournalCommit) -> bool:
    """Whether two commits have the same position and the same events. The ids of events have the process in them."""
    return one.position == other.position and [
        (part.topic_id, part.base_offset, bytes(part.batch)) for part in one.parts
    ] == [(part.topic_id, part.base_offset, bytes(part.batch)) for part in other.parts]


class JournalLog(NumberedLog):
    """The journal with global positions as offsets."""

    def _with_count(self, batch: NumberedBatch) -> NumberedBatch:
        event_count = sum(event_count_of(commit.parts) for commit in commits_of(0, batch.data))
        return batch._replace(event_count=event_count)

    def _events_before(self, batch: NumberedBatch, offset: int) -> int:
        commits = list(commits_of(0, batch.data))
        return sum(event_count_of(one.parts) for one in commits[: max(0, offset - batch.header.base_offset)])

    def _renumbered(self, batch: NumberedBatch) -> bytes:
        """Return a batch as the server's own journal has it."""
        records = [
            NewRecord(event_count_of(one.parts), one.key, encode_value(_NO_CHECKPOINT, one.parts, one.order))
            for one in commits_of(batch.number, batch.data)
        ]
        view, _ = journal_batch(records, batch.header.max_timestamp)
        return batch.number.to_bytes(8) + bytes(view[8:])
