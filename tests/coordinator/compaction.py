"""A short model of log compaction, with the rules of `storage/compaction/compaction.py`."""

from collections.abc import Sequence

from kwire.coordinator.log_records import PendingRecord, Replayed, TransactionEnd


def compacted(log: Sequence[Replayed]) -> list[Replayed]:
    """Of each key the last record that counts, and of what is gone nothing.

    What was aborted goes and takes nobody's place. From the first record of an open transaction on, everything stays.
    A marker stays as long as there is something left that it decides about.
    """
    ends = {position: _end_of(log, position) for position, one in enumerate(log) if isinstance(one, PendingRecord)}
    clean_end = min((position for position, end in ends.items() if end is None), default=len(log))
    counting = [
        position
        for position, one in enumerate(log[:clean_end])
        if isinstance(one, tuple) or (isinstance(one, PendingRecord) and _is_committed(log, ends[position]))
    ]
    last = {_key(log[position]): position for position in counting}
    kept = [
        position for position in counting if last[_key(log[position])] == position and not _is_tombstone(log[position])
    ]
    markers = {ends[position] for position in kept if position in ends}
    stays = {*kept, *markers}
    return [one for position, one in enumerate(log) if position in stays or position >= clean_end]


def _end_of(log: Sequence[Replayed], position: int) -> int | None:
    one = log[position]
    assert isinstance(one, PendingRecord)
    for later in range(position, len(log)):
        end = log[later]
        if isinstance(end, TransactionEnd) and end.producer_id == one.producer_id:
            return later
    return None


def _is_committed(log: Sequence[Replayed], end: int | None) -> bool:
    marker = None if end is None else log[end]
    return isinstance(marker, TransactionEnd) and marker.is_commit


def _key(one: Replayed) -> bytes:
    assert not isinstance(one, TransactionEnd)
    return one.key if isinstance(one, PendingRecord) else one[0]


def _is_tombstone(one: Replayed) -> bool:
    return isinstance(one, tuple) and one[1] is None
