"""A log as plain files, for compaction: written batch by batch, compacted, swapped by hand, and read again."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from storage.batch.format import COMMIT
from storage.batch.markers import marker_record
from storage.batch.record_batch import BatchHeader, Record, build_batch, parse_header, read_records
from storage.compaction.compaction import CompactionJob, CompactionResult, compact
from storage.disk.files import Files
from storage.log.producers import ProducerStates
from storage.log.segment_replacement import new_index_path, new_log_path
from storage.segment.index import decode_sealed
from storage.segment.sealed_scan import SealedSegment
from storage.segment.segment import index_name, segment_name
from tests.support.batches import NOW_MS, UnsyncedFiles, split_batches

BUDGET_BYTES = 1024 * 1024
DAY_MS = 24 * 60 * 60 * 1000


class CompactableFolder:
    """Segments of about ``segment_bytes``; :meth:`roll` closes one. Producers get their sequences here."""

    def __init__(self, directory: Path, *, segment_bytes: int = 1024 * 1024, files: Files | None = None) -> None:
        self.directory = directory
        self.files = files or UnsyncedFiles()
        self.segment_bytes = segment_bytes
        self.segments: list[SealedSegment] = []
        self.next_offset = 0
        self.clean_upto = 0
        self.producers = ProducerStates()
        self._sequences: dict[int, int] = {}
        self._base_offset = 0
        self._data = bytearray()

    def add(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        compression: int = 0,
        is_transactional: bool = False,
        is_control: bool = False,
        timestamp_type: int = 0,
    ) -> BatchHeader:
        has_sequence = producer_id >= 0 and not is_control
        base_sequence = self._sequences.get(producer_id, 0) if has_sequence else -1
        batch = build_batch(
            records,
            base_offset=self.next_offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
            compression=compression,
            is_transactional=is_transactional,
            is_control=is_control,
            partition_leader_epoch=3,
            timestamp_type=timestamp_type,
        )
        if has_sequence:
            self._sequences[producer_id] = base_sequence + len(records)
        return self.add_bytes(batch)

    def add_bytes(self, batch: bytes | bytearray) -> BatchHeader:
        header = parse_header(batch)
        if self._data and len(self._data) + len(batch) > self.segment_bytes:
            self.roll()
        self._data += batch
        self.next_offset = header.last_offset + 1
        if header.producer_id >= 0:
            self.producers.record(header, header.base_offset, -1, NOW_MS)
        return header

    def put(self, key: str | None, value: str | None, **how: int) -> int:
        """One record in a batch of its own; its offset."""
        record = Record(
            key.encode() if key is not None else None, value.encode() if value is not None else None, NOW_MS
        )
        return self.add([record], **how).base_offset  # type: ignore[arg-type]

    def mark(self, producer_id: int, kind: int = COMMIT) -> int:
        """End a transaction; the marker's offset."""
        return self.add(
            [marker_record(kind, 0, NOW_MS)], producer_id=producer_id, is_transactional=True, is_control=True
        ).base_offset

    def roll(self) -> None:
        if self._data:
            (self.directory / segment_name(self._base_offset)).write_bytes(self._data)
            self.segments.append(SealedSegment(self._base_offset, self.next_offset, len(self._data)))
        self._base_offset, self._data = self.next_offset, bytearray()

    def job(self, **changes: int | bytes | tuple[SealedSegment, ...]) -> CompactionJob:
        job = CompactionJob(
            directory=str(self.directory),
            segments=tuple(self.segments),
            clean_upto=self.clean_upto,
            uncleanable_offset=self.next_offset,
            producers=self.producers.encode(),
            now_ms=NOW_MS,
            delete_retention_ms=DAY_MS,
            keys_bytes_max=1024 * 1024,
            segment_bytes=self.segment_bytes,
            index_interval_bytes=256,
        )
        return replace(job, **changes)

    def compact(self, **changes: int | bytes | tuple[SealedSegment, ...]) -> CompactionResult:
        """Compact and swap, as a log would."""
        result = compact(self.job(**changes), None, self.files)
        self.swap(result)
        return result

    def swap(self, result: CompactionResult) -> None:
        for group in result.groups:
            at = self.segments.index(group.removed[0])
            assert self.segments[at : at + len(group.removed)] == list(group.removed)
            added = group.added
            assert (added.base_offset, added.next_offset) == (
                group.removed[0].base_offset,
                group.removed[-1].next_offset,
            )
            self.segments[at : at + len(group.removed)] = [
                SealedSegment(added.base_offset, added.next_offset, added.size_bytes)
            ]
            for segment in group.removed:
                (self.directory / segment_name(segment.base_offset)).unlink()
            directory, base_offset = str(self.directory), added.base_offset
            Path(new_log_path(directory, base_offset)).rename(self.directory / segment_name(base_offset))
            Path(new_index_path(directory, base_offset)).rename(self.directory / index_name(base_offset))
            index = (self.directory / index_name(added.base_offset)).read_bytes()
            sealed = decode_sealed(added.base_offset, index, added.size_bytes)
            assert sealed is not None
            assert sealed[1] == added.max_timestamp
        self.clean_upto = result.clean_upto

    # --- reading

    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def batches(self) -> list[bytes]:
        """All batches of the closed segments, in order; what they promise each other is checked."""
        batches = []
        for segment in self.segments:
            data = (self.directory / segment_name(segment.base_offset)).read_bytes()
            assert len(data) == segment.size_bytes
            found = [bytes(batch) for batch in split_batches(memoryview(data))]
            offset = segment.base_offset
            for header in map(parse_header, found):
                assert header.base_offset >= offset
                offset = header.last_offset + 1
            assert offset == segment.next_offset, "offsets at the end of a segment are covered by no batch"
            batches += found
        return batches

    def headers(self) -> list[BatchHeader]:
        return [parse_header(batch) for batch in self.batches()]

    def records(self) -> list[Record]:
        """The data records of the closed segments."""
        return [
            record
            for batch in self.batches()
            if not parse_header(batch).is_control
            for record in read_records(batch, BUDGET_BYTES)
        ]

    def values(self) -> list[tuple[int, str | None, str | None]]:
        """(offset, key, value) of the data records."""
        return [
            (
                record.offset,
                record.key.decode() if record.key is not None else None,
                record.value.decode() if record.value is not None else None,
            )
            for record in self.records()
        ]

    def marker_offsets(self) -> list[int]:
        return [header.base_offset for header in self.headers() if header.is_control and header.record_count]
