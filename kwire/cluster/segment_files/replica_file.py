"""The journal of one replica: entries with their stamps, the acked index and the unknown ranges.

One step of a store is one frame, so that a crash keeps all of it or nothing. The journal removes an unfinished last
frame, which was never acknowledged. Any other damage means that acknowledged frames are lost: :func:`salvaged` keeps
what can be read, and the indexes that the lost frames may have changed become unknown.

The payloads of a plain stream are in the journal. Those of a partition are batches of its log, to which the journal
refers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kwire.cluster.core.entries import INDEX_MAX, Entry, Range, Run, joined_ranges, run_of
from kwire.cluster.core.policies import ENTRY_BYTES
from kwire.cluster.core.runs import EntryRuns
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveAfter,
    ReplicaState,
    SetAcked,
    SetComplete,
    SetStamps,
    SetUnknown,
    Trim,
)
from kwire.cluster.segment_files.partition_log import BatchRef, EntryDamaged, PartitionLog
from kwire.cluster.segment_files.records import (
    HEAD_BYTES,
    Code,
    FileId,
    FrameHead,
    RecordDamaged,
    decode_batch,
    decode_entry,
    decode_head,
    decode_index,
    decode_ranges,
    decode_runs,
    decode_trimmed,
    encode_batch,
    encode_entry,
    encode_head,
    encode_index,
    encode_ranges,
    encode_runs,
    encode_trimmed,
)
from storage.disk.files import Files
from storage.disk.journal import Frame, Journal, decode_journal, encode_frame, record_positions, salvage_frames
from storage.errors import JournalDamaged, disk_errors

EVERYTHING: Final = Range(1, INDEX_MAX)
OFFSET_MAX: Final = 2**63 - 1
_NOTHING: Final = Range(0, 0)
_NO_BATCHES: Final[Mapping[int, BatchRef]] = {}

ReplicaWrite = PutEntries | SetStamps | RemoveAfter | SetAcked | SetComplete | SetUnknown | Trim
_Change = Entry | SetStamps | RemoveAfter | SetAcked | SetComplete | SetUnknown | Trim


class Record(NamedTuple):
    """A record of the journal: its position in the file and its size."""

    position: int
    size: int


Place = Record | BatchRef


class ReplicaContent:
    """What the frames of a replica add up to."""

    def __init__(self, file: FileId) -> None:
        self.file = file
        self.runs = EntryRuns()
        self.acked = 0
        self.complete_epoch = 0
        # Entries before this one were trimmed. They are in the runs, but in no place.
        self.first = 1
        self.unknown: list[Range] = []
        # The indexes that missing frames may have changed, and whether frames are missing.
        self._lost: list[Range] = []
        self.is_damaged = False
        # By index: where the entry is, in the file or in the log of the partition.
        self.places: dict[int, Place] = {}
        # The first offset at which the log of the partition was found damaged.
        self.damaged_offset = OFFSET_MAX
        self.frame_count = 0
        # What the last frame changed.
        self.touched = _NOTHING

    def add_frame(self, frame: Frame) -> bool:
        """Take over a frame. Returns False if the frame is not the next one of this file, or older."""
        head = decode_head(frame.records[0])
        if head is None or head.file != self.file or head.number <= self.frame_count:
            return False
        missing = head.number - self.frame_count - 1
        if missing:
            self.doubt(head.touched if missing == 1 else EVERYTHING)
        self.frame_count, self.touched = head.number, _NOTHING
        positions = record_positions(frame.start, frame.records)
        for position, record in zip(positions, frame.records, strict=True):
            self._replay(position, record)
        return True

    def doubt(self, lost: Range) -> None:
        """Frames are missing that may have changed these indexes."""
        self.is_damaged = True
        if lost.last:
            self._lost.append(lost)
            self.unknown = joined_ranges([*self.unknown, lost])

    def batches(self) -> list[tuple[int, BatchRef]]:
        """The indexes of the events in the log of the partition, and their batches, in offset order."""
        return [(index, place) for index, place in sorted(self.places.items()) if isinstance(place, BatchRef)]

    def lose_batches(self, end_offset: int) -> bool:
        """The log has no sound batches from `end_offset` on: these entries are unknown. Returns whether any is lost."""
        lost = [index for index, ref in self.batches() if ref.next_offset > end_offset]
        if not lost:
            return False
        for index in lost:
            del self.places[index]
        self.runs = EntryRuns([*self.runs.between(1, lost[0] - 1), *self.runs.between(lost[-1] + 1, INDEX_MAX)])
        self.doubt(Range(lost[0], lost[-1]))
        return True

    def covers(self, end: int) -> bool:
        """Whether all entries up to the bridge at `end` are there, and none after it."""
        count = sum(run.last - run.first + 1 for run in self.runs)
        return count == self.runs.last == end

    def state(self, sealed_epoch: int, closed_end: int) -> ReplicaState:
        return ReplicaState(
            sealed_epoch,
            max(self.acked, closed_end),
            closed_end,
            self.complete_epoch,
            tuple(self.runs),
            tuple(self.unknown),
            self.first,
        )

    # --- the effect of each record

    def _replay(self, position: int, record: bytes) -> None:
        match record[0]:
            case Code.ENTRY:
                self.put(decode_entry(self.file, record), Record(position, len(record)))
            case Code.BATCH:
                self.put(*decode_batch(record))
            case Code.DAMAGED:
                self.add_damage(decode_index(record))
            case Code.TRIMMED:
                self.trim(*decode_trimmed(record))
            case Code.STAMPS:
                self.set_stamps(decode_runs(record))
            case Code.REMOVE_AFTER:
                self.remove_after(decode_index(record))
            case Code.ACKED:
                self.acked = decode_index(record)
            case Code.COMPLETE:
                self.complete_epoch = decode_index(record)
            case Code.UNKNOWN:
                self.set_unknown(decode_ranges(record))

    def put(self, entry: Entry, place: Place) -> None:
        if isinstance(self.places.get(entry.index), BatchRef) and isinstance(place, Record):
            # The log is cut before a batch, with everything after it.
            self.remove_after(entry.index)
        self.runs.put(run_of(entry))
        self.places[entry.index] = place
        self._touch(entry.index, entry.index)

    def trim(self, first: int, runs: Iterable[Run]) -> None:
        for run in runs:
            self.runs.put(run)
        self.first = max(self.first, first)
        for index in [index for index in self.places if index < self.first]:
            del self.places[index]
        self._touch(1, first - 1)

    def add_damage(self, offset: int) -> None:
        self.damaged_offset = min(self.damaged_offset, offset)

    def set_stamps(self, runs: Iterable[Run]) -> None:
        for run in runs:
            # After damage, only a part of the entries may be there.
            for present in list(self.runs.between(run.first, run.last)):
                if present.identity() == run.identity():
                    self.runs.put(present._replace(stamp_epoch=run.stamp_epoch))
            self._touch(run.first, run.last)

    def remove_after(self, index: int) -> None:
        for removed in range(index + 1, self.runs.last + 1):
            self.places.pop(removed, None)
        self.runs.remove_after(index)
        self._touch(index + 1, INDEX_MAX)

    def set_unknown(self, ranges: Iterable[Range]) -> None:
        for one in self.unknown:
            self._touch(*one)
        # A later record does not know of the damage.
        self.unknown = joined_ranges([*ranges, *self._lost])
        for one in self.unknown:
            self._touch(*one)

    def _touch(self, first: int, last: int) -> None:
        before = self.touched
        self.touched = Range(min(before.first, first), max(before.last, last)) if before.last else Range(first, last)


class ReplicaFile:
    """The journal of one replica, open for writing. Used by one thread. `log` has the payloads of a partition."""

    def __init__(self, journal: Journal, content: ReplicaContent, log: PartitionLog | None) -> None:
        self._journal = journal
        self.content = content
        self.log = log

    @classmethod
    def open(cls, path: str, files: Files, file: FileId, log: PartitionLog | None = None) -> ReplicaFile:
        """Open or create the file. Raises JournalDamaged if frames are lost, see :func:`salvaged`."""
        _check_tail(path, files, file)
        journal = Journal.open(path, files)
        try:
            content = ReplicaContent(file)
            for frame in salvage_frames(journal.read(0, journal.size_bytes)):
                if not content.add_frame(frame):
                    raise JournalDamaged(f"{path}: the frame at byte {frame.start} belongs to another file")
            if content.is_damaged:
                raise JournalDamaged(f"{path}: a frame is missing")
        except BaseException:
            journal.close()
            raise
        return cls(journal, content, log)

    def write(self, writes: Iterable[ReplicaWrite], batches: Mapping[int, BatchRef] = _NO_BATCHES) -> None:
        """Append the writes as one frame. :meth:`sync` makes it durable.

        `batches`, by index, are the payloads that are in the log.
        """
        content = self.content
        changes = [change for write in writes for change in _changes(write)]
        records = [_encode(content.file, change, batches) for change in changes]
        for change, position, record in zip(changes, self._write_frame(records), records, strict=True):
            match change:
                case Entry():
                    content.put(change, batches.get(change.index) or Record(position, len(record)))
                case SetStamps():
                    content.set_stamps(change.runs)
                case RemoveAfter():
                    content.remove_after(change.index)
                case SetAcked():
                    content.acked = change.acked
                case SetComplete():
                    content.complete_epoch = change.epoch
                case SetUnknown():
                    content.set_unknown(change.ranges)
                case Trim():
                    content.trim(change.first, change.runs)

    def _write_frame(self, records: list[bytes]) -> Iterator[int]:
        """Append a frame with these records. Returns their positions."""
        content = self.content
        head = FrameHead(content.file, content.frame_count + 1, content.touched)
        records = [encode_head(head), *records]
        start = self._journal.size_bytes
        self._journal.write(encode_frame(records))
        content.frame_count, content.touched = head.number, _NOTHING
        positions = record_positions(start, records)
        next(positions)
        return positions

    def sync(self) -> None:
        self._journal.sync()

    def keep_unsynced(self) -> None:
        self._journal.keep_unsynced()

    def read(self, first: int, last: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries in index order: as many as fit in `bytes_max`, but at least one. Raises EntryDamaged."""
        entries: list[Entry] = []
        for run in self.content.runs.between(max(first, self.content.first), last):
            for index in range(run.first, run.last + 1):
                entry = self._read_entry(index, run)
                bytes_max -= ENTRY_BYTES + len(entry.payload)
                if entries and bytes_max < 0:
                    return tuple(entries)
                entries.append(entry)
        return tuple(entries)

    def _read_entry(self, index: int, run: Run) -> Entry:
        place = self.content.places[index]
        if isinstance(place, BatchRef):
            return Entry(index, run.kind, run.birth_epoch, run.stamp_epoch, self._read_batch(place))
        try:
            entry = decode_entry(self.content.file, self._journal.read(*place))
        except RecordDamaged as damage:
            raise EntryDamaged(f"{self._journal.path}: {damage}") from damage
        if (entry.index, entry.kind, entry.birth_epoch) != (index, run.kind, run.birth_epoch):
            raise EntryDamaged(f"{self._journal.path}: another entry is at the place of index {index}")
        return Entry(index, entry.kind, entry.birth_epoch, run.stamp_epoch, entry.payload)

    def _read_batch(self, ref: BatchRef) -> bytes:
        assert self.log is not None
        try:
            return self.log.read(ref)
        except EntryDamaged:
            self.note_damage(ref.offset)
            raise

    def note_damage(self, offset: int) -> None:
        """Record that the log is damaged: opening a log does not read all of it, and the next start has to know."""
        if offset < self.content.damaged_offset:
            self._write_frame([encode_index(Code.DAMAGED, offset)])
            self.content.add_damage(offset)
            self._journal.sync()

    def payload_free(self) -> list[tuple[Entry, BatchRef | None]]:
        """All entries with their current stamps. The payload of a batch is left out."""
        return _entries(self.content, self._journal.read(0, self._journal.size_bytes))

    def close(self) -> None:
        self._journal.close()


def _check_tail(path: str, files: Files, file: FileId) -> None:
    """Raise JournalDamaged if the journal would remove the end of the file although it is a frame of another file."""
    with disk_errors(f"read {path}"):
        data = files.read_file(path) or b""
    _, end = decode_journal(path, data)
    positions = record_positions(end, [b""])
    head = decode_head(data[next(positions) :][:HEAD_BYTES])
    if head is not None and head.file != file:
        raise JournalDamaged(f"{path}: the unfinished frame at byte {end} belongs to another file")


def salvaged(path: str, files: Files, file: FileId) -> tuple[ReplicaContent, list[tuple[Entry, BatchRef | None]]]:
    """What can be read of a damaged file, and its entries with their current stamps.

    The content's unknown ranges cover everything that the lost frames may have changed.
    """
    with disk_errors(f"read {path}"):
        data = files.read_file(path) or b""
    content = ReplicaContent(file)
    end = 0
    for frame in salvage_frames(data):
        if content.add_frame(frame):
            end = frame.end
    if any(data[end:]) or not content.frame_count:
        # Frames after the last complete one are lost, and no frame says what they changed.
        content.doubt(EVERYTHING)
    content.complete_epoch = 0
    return content, _entries(content, data)


def _entries(content: ReplicaContent, data: bytes) -> list[tuple[Entry, BatchRef | None]]:
    entries: list[tuple[Entry, BatchRef | None]] = []
    for run in content.runs.between(content.first, INDEX_MAX):
        for index in range(run.first, run.last + 1):
            place = content.places[index]
            if isinstance(place, BatchRef):
                entries.append((Entry(index, run.kind, run.birth_epoch, run.stamp_epoch), place))
            else:
                entry = decode_entry(content.file, data[place.position : place.position + place.size])
                entries.append((Entry(index, entry.kind, entry.birth_epoch, run.stamp_epoch, entry.payload), None))
    return entries


def _changes(write: ReplicaWrite) -> Iterator[_Change]:
    if isinstance(write, PutEntries):
        yield from write.entries
    else:
        yield write


def _encode(file: FileId, change: _Change, batches: Mapping[int, BatchRef]) -> bytes:
    match change:
        case Entry() if change.index in batches:
            return encode_batch(change, batches[change.index])
        case Entry():
            return encode_entry(file, change)
        case SetStamps():
            return encode_runs(change.runs)
        case RemoveAfter():
            return encode_index(Code.REMOVE_AFTER, change.index)
        case SetAcked():
            return encode_index(Code.ACKED, change.acked)
        case SetComplete():
            return encode_index(Code.COMPLETE, change.epoch)
        case SetUnknown():
            return encode_ranges(change.ranges)
        case Trim():
            return encode_trimmed(change.first, change.runs)
