"""Reading a partition as events where a transaction is open: the head is where it begins, whatever lies around it."""

from pathlib import Path

import pytest

from kwire.streams.events.event import Event
from kwire.streams.events.reading import EventReader
from kwire.streams.log import Unreadable
from storage.log.quarantine import Quarantine
from tests.support.batches import UnsyncedFiles, make_batch
from tests.support.events import append, lone_partition, stream_of
from tests.support.new_segments import write_new_segment
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

NOW_MS = 1_700_000_000_000


def next_events(reader: EventReader) -> list[Event]:
    found = reader.read()
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("has_damage", [False, True])
def test_a_gap_before_an_open_transaction_ends_at_the_head(tmp_path: Path, has_damage: bool) -> None:
    """Compaction has taken the end of the segment before, and the next one begins with the transaction."""
    files = UnsyncedFiles()
    partition = lone_partition(tmp_path, files=files)
    append(partition, make_batch(timestamp_ms=NOW_MS))
    append(partition, make_batch(timestamp_ms=NOW_MS))
    log = log_of(partition)
    log.roll(NOW_MS)
    producer = TransactionalProducer(partition, 7)
    producer.send()
    sealed = [segment for segment in log.segments() if segment is not log._active]
    new = write_new_segment(log, files, sealed, lambda header: header.base_offset == 0)
    log.replace_segments(sealed, [new], clean_upto=2)
    if has_damage:  # beyond the head: not reported before a reader gets there
        start = log._active.size_bytes if log._active else 0
        append(partition, make_batch(timestamp_ms=NOW_MS))
        log.quarantine(Quarantine(2, start, log._active.size_bytes - start if log._active else 0, 3, 4, "test"))
    reader = EventReader(stream_of(partition), 0)
    assert [event.offset for event in next_events(reader)] == [0]
    assert next_events(reader) == []
    assert reader.next_offset == 2
    producer.commit()
    assert [event.offset for event in next_events(reader)] == [2]
    if has_damage:
        with pytest.raises(Unreadable) as caught:
            reader.read()
        assert (caught.value.from_offset, caught.value.to_offset) == (3, 4)
