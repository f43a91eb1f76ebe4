"""Verifies a segment: reads and checks every batch, and changes nothing.

Used by ``kwire log verify`` and by the scrub of a running server. A verification works in steps: :func:`verify_segment`
reads up to ``limit_bytes`` and returns a report. The next call continues from that report. So the caller can limit the
rate, show progress or stop. The report between two steps is small. Jobs and reports can be sent to another process.

Bytes are read, not mapped: a page that the disk cannot read raises an exception in a read, but a fatal signal in a map.
Such a page is replaced by zeros, so that the scan continues after it as after any other damage. At an invalid batch,
:mod:`storage.segment.scan` decides which bytes are damaged, so that the reported ranges are those that the next start
would quarantine.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from crc32c import crc32c
from msgspec import Struct, field
from msgspec.structs import replace

from storage.batch.format import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    ZSTD,
)
from storage.batch.markers import read_marker
from storage.disk.files import Files
from storage.log.quarantine import Quarantine
from storage.segment.index import ENTRY, ENTRY_BYTES, NO_MAX_TIMESTAMP, SparseIndex, decode_sealed, seal_timestamp
from storage.segment.scan import Ending, ScanResult, SegmentScan
from storage.segment.txn_index import AbortedEntry, decode_fitting

# A report holds at most this many findings. Further ones are only counted.
FINDINGS_MAX: Final = 200
WINDOW_BYTES: Final = 2 * 1024 * 1024
_PAGE_BYTES: Final = 4096
_SPAN_MAX: Final = 2**32
_NO_INDEX_BYTES: Final = 2**62
_NO_REPLAY: Final = 2**63

_unpack_header = HEADER.unpack_from


class Kind(StrEnum):
    """The kinds of findings. Reports show their values."""

    DAMAGE = "damaged bytes"
    MISSING = "missing offsets"
    HEADER = "impossible header"
    INDEX = "index"
    SEAL = "seal"
    CHECKPOINT = "checkpoint"
    UNREADABLE = "unreadable"
    JOURNAL = "journal"
    CHAIN = "hash chain"
    QUARANTINED = "quarantined"
    TORN = "torn tail"
    UNFINISHED = "unfinished"
    STRAY = "stray file"


class Finding(Struct, frozen=True):
    """One finding. ``is_sound``: no record is lost, and the next start handles the finding."""

    kind: Kind
    path: str
    reason: str
    is_sound: bool = False
    position: int | None = None
    size_bytes: int = 0
    offset: int | None = None
    end_offset: int | None = None


class SegmentJob(Struct, frozen=True):
    """A segment to verify, and the facts known about it in advance.

    ``next_base``: the base offset of the next segment, or the log end offset if it is certain. ``known_offset``:
    records below this offset existed. ``is_truncated``: the file must end with its last batch. Batches below
    ``clean_upto`` were compacted, so offset gaps are normal there.
    """

    directory: str
    base_offset: int
    log_name: str
    index_name: str
    size_bytes: int
    next_base: int | None = None
    known_offset: int = 0
    clean_upto: int = 0
    is_truncated: bool = False
    is_same_boot: bool = False
    quarantined: tuple[Quarantine, ...] = ()
    # Empty if there is no transaction index file.
    txn_index_name: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.log_name)

    @property
    def index_path(self) -> str:
        return os.path.join(self.directory, self.index_name)

    @property
    def txn_index_path(self) -> str:
        return os.path.join(self.directory, self.txn_index_name)


class Survey(Struct, frozen=True):
    """The result of a recovery scan from the first invalid batch on: damaged ranges, and how the segment ends."""

    ranges: tuple[Quarantine, ...]
    end_position: int
    ending: Ending
    reason: str


class SegmentReport(Struct):
    """The progress and the findings of a verification. ``is_gone``: the file was removed or replaced meanwhile."""

    position: int
    next_offset: int
    max_timestamp: int = NO_MAX_TIMESTAMP
    batch_count: int = 0
    record_count: int = 0
    finding_count: int = 0
    findings: list[Finding] = field(default_factory=list)
    is_done: bool = False
    is_gone: bool = False
    seal: bytes = b""
    # The number of transaction index entries that were compared with their markers.
    aborted_count: int = 0
    survey: Survey | None = None

    def add(self, finding: Finding) -> None:
        self.finding_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


def verify_segment(
    job: SegmentJob, report: SegmentReport | None, limit_bytes: int, files: Files | None = None
) -> SegmentReport:
    """Check the next ``limit_bytes``, up to the end of a batch. Without a ``report``, start at the first byte."""
    files = files or Files()
    report = report or SegmentReport(0, job.base_offset)
    try:
        fd = files.open_read(job.path)
    except FileNotFoundError:
        report.is_done = report.is_gone = True
        return report
    except OSError as error:
        report.add(Finding(Kind.UNREADABLE, job.path, f"the file cannot be opened: {error}"))
        report.is_done = True
        return report
    try:
        _Verification(job, report, files, fd).run(limit_bytes)
    finally:
        files.close(fd)
    return report


def verify_segments(
    pack: Sequence[tuple[SegmentJob, SegmentReport | None]], limit_bytes: int
) -> list[SegmentReport | None]:
    """Verify several segments in order, until ``limit_bytes`` are used up; None for those that were not begun."""
    reports: list[SegmentReport | None] = []
    for job, report in pack:
        if limit_bytes > 0 and not (report is not None and report.is_done):
            before = report.position if report is not None else 0
            report = verify_segment(job, report, limit_bytes)
            # Each file uses at least one page of the limit: even an empty file is opened and its index is read.
            limit_bytes -= max(report.position - before, _PAGE_BYTES)
        reports.append(report)
    return reports


def survey_segment(job: SegmentJob, position: int, expected: int, files: Files | None = None) -> Survey:
    """Run a recovery scan from ``position`` on, where a batch with base offset ``expected`` should begin."""
    files = files or Files()
    fd = files.open_read(job.path)
    try:
        return _Verification(job, SegmentReport(position, expected), files, fd).make_survey(position, expected)
    finally:
        files.close(fd)


class _Window:
    """The bytes of one file, of which a part is in memory."""

    def __init__(self, files: Files, fd: int, end: int) -> None:
        self._files = files
        self._fd = fd
        self.end = end
        self.start = 0
        self.data = b""
        self.failure: OSError | None = None

    def load(self, position: int) -> None:
        self.data = self.read(position, min(WINDOW_BYTES, self.end - position))
        self.start = position

    def read(self, position: int, size: int) -> bytes:
        try:
            data = self._files.pread(self._fd, size, position)
        except OSError as error:
            self.failure = error
            # Halve the range until the unreadable page is found.
            middle = (position + size // 2 + _PAGE_BYTES - 1) // _PAGE_BYTES * _PAGE_BYTES
            if middle >= position + size:
                middle -= _PAGE_BYTES
            if middle <= position:
                return bytes(size)
            return self.read(position, middle - position) + self.read(middle, position + size - middle)
        # If the file was truncated meanwhile, the rest is zeros.
        return data if len(data) == size else data + bytes(size - len(data))

    def crc(self, start: int, end: int) -> int:
        at = start - self.start
        if at >= 0 and end - self.start <= len(self.data):
            return int(crc32c(memoryview(self.data)[at : end - self.start]))
        crc = 0
        while start < end:
            piece = self.read(start, min(WINDOW_BYTES, end - start))
            crc = crc32c(piece, crc)
            start += len(piece)
        return crc

    def header(self, position: int) -> tuple[int, ...] | None:
        """The header fields at ``position``; None if the file ends inside the header."""
        if position + HEADER_BYTES > self.end:
            return None
        if position < self.start or position + HEADER_BYTES > self.start + len(self.data):
            self.load(position)
        return _unpack_header(self.data, position - self.start)

    def has_failed(self) -> bool:
        return self.failure is not None

    def check(self, start: int, end: int) -> None:
        """Raise ``OSError`` if these bytes cannot be read."""
        while start < end:
            size = min(WINDOW_BYTES, end - start)
            self._files.pread(self._fd, size, start)
            start += size


class _Verification:
    """One step of the verification of one segment."""

    def __init__(self, job: SegmentJob, report: SegmentReport, files: Files, fd: int) -> None:
        self.job = job
        self.report = report
        self.files = files
        self.fd = fd
        self.bytes = _Window(files, fd, job.size_bytes)
        self.offset_limit = job.next_base if job.next_base is not None else job.base_offset + _SPAN_MAX
        self.quarantined = {(one.position, one.start_offset): one for one in job.quarantined}
        self.has_valid_seal = False
        self.index = SparseIndex(job.base_offset)
        self.aborted: list[AbortedEntry] = []

    def run(self, limit_bytes: int) -> None:
        report = self.report
        self.load_index()
        self.load_aborted()
        stop = min(report.position + limit_bytes, self.bytes.end)
        at = bisect_left(self.index.positions, report.position)
        while not self.is_over(stop):
            at = self.step(at)
            self.check_valid_batches(stop, at)
        if report.position >= self.bytes.end and not report.is_done:
            self.finish(report.position)

    def is_over(self, stop: int) -> bool:
        report = self.report
        if report.is_done:
            return True
        return report.position >= stop and (report.position, report.next_offset) not in self.quarantined

    def check_valid_batches(self, stop: int, at: int) -> None:
        """Fast path: check valid batches of the window, up to the first one that needs :meth:`step`."""
        if self.quarantined:
            return
        report, data, start = self.report, self.bytes.data, self.bytes.start
        view, size = memoryview(data), len(data)
        position, stop = report.position - start, stop - start
        expected, max_timestamp = report.next_offset, report.max_timestamp
        if at < len(self.index):
            stop = min(stop, self.index.positions[at] - start)
        while 0 <= position < stop and position + HEADER_BYTES <= size:
            base, length, _, magic, crc, attributes, delta, _, timestamp, _, _, _, count = _unpack_header(
                data, position
            )
            end = position + length + LENGTH_OVERHEAD
            if (
                base != expected
                or magic != MAGIC
                or not MIN_BATCH_LENGTH <= length <= size - position - LENGTH_OVERHEAD
            ):
                break
            if attributes & COMPRESSION_MASK > ZSTD or attributes & CONTROL_BIT or delta < 0 or count != delta + 1:
                break
            if crc32c(view[position + CRC_START : end]) != crc:
                break
            report.batch_count += 1
            report.record_count += count
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            expected += count
            position = end
        report.position, report.next_offset, report.max_timestamp = position + start, expected, max_timestamp

    # --- one batch, or one damaged range

    def step(self, at: int) -> int:
        """Check the batch or range at the report's position and advance. Returns the number of the next index entry."""
        report = self.report
        position, expected = report.position, report.next_offset
        known = self.quarantined.pop((position, expected), None)
        if known is not None:
            self.add(
                *(Kind.QUARANTINED, known.reason),
                is_sound=True,
                size_bytes=known.size_bytes,
                end_offset=known.end_offset,
            )
            return self.jump(min(known.end_position, self.bytes.end), known.end_offset)
        header = self.valid_batch(position, expected)
        if header is None:
            return self.handle_invalid(position, expected)
        self.check_header(header)
        if header[5] & CONTROL_BIT and self.aborted:
            self.check_marker(header, position)
        positions = self.index.positions
        if at < len(positions) and positions[at] <= position:
            at = self.check_entries(at, header[0])
        report.max_timestamp = max(report.max_timestamp, header[8])
        report.batch_count += 1
        report.record_count += max(header[12], 0)
        report.position = position + header[1] + LENGTH_OVERHEAD
        report.next_offset = header[0] + header[6] + 1
        return at

    def valid_batch(self, position: int, expected: int) -> tuple[int, ...] | None:
        """The header of the batch at ``position``, if its CRC matches and its base offset is the expected one."""
        window = self.bytes
        header = window.header(position)
        if header is None:
            return None
        base_offset, length, _, magic, crc, _, delta, *_ = header
        end = position + length + LENGTH_OVERHEAD
        if magic != MAGIC or length < MIN_BATCH_LENGTH or delta < 0 or end > window.end:
            return None
        if base_offset != expected and not expected < base_offset <= self.job.clean_upto:
            return None
        if base_offset + delta >= self.offset_limit:
            return None
        if end > window.start + len(window.data) and end - position <= WINDOW_BYTES:
            window.load(position)
        if window.crc(position + CRC_START, end) != crc:
            return None
        # The CRC does not cover the base offset, so after a gap the next batch has to confirm it.
        if base_offset != expected:
            following = window.header(end)
            if following is not None and following[3] == MAGIC and following[0] <= base_offset + delta:
                return None
        return header

    def check_header(self, header: tuple[int, ...]) -> None:
        attributes, delta, count = header[5], header[6], header[12]
        is_compacted = header[0] < self.job.clean_upto
        end_offset = header[0] + delta + 1
        if attributes & COMPRESSION_MASK > ZSTD:
            self.add(
                Kind.HEADER, f"compression codec {attributes & COMPRESSION_MASK} does not exist", end_offset=end_offset
            )
        elif count > delta + 1 or count < (0 if is_compacted else 1):
            # Fewer records are normal: a record of the topic `__events` takes one offset for each of its events.
            self.add(Kind.HEADER, f"{count} records in {delta + 1} offsets", end_offset=end_offset)

    def jump(self, position: int, next_offset: int) -> int:
        self.report.position = position
        self.report.next_offset = max(next_offset, self.report.next_offset)
        return bisect_left(self.index.positions, position)

    # --- invalid batches

    def handle_invalid(self, position: int, expected: int) -> int:
        survey = self.report.survey
        if survey is None:
            survey = self.report.survey = self.make_survey(position, expected)
        for found in survey.ranges:
            if (found.position, found.start_offset) == (position, expected) and found.end_offset > expected:
                kind = Kind.DAMAGE if found.size_bytes else Kind.MISSING
                self.add(kind, found.reason, size_bytes=found.size_bytes, end_offset=found.end_offset)
                return self.jump(found.end_position, found.end_offset)
        self.end_of_batches(position, expected, survey)
        return len(self.index)

    def make_survey(self, position: int, expected: int) -> Survey:
        job, window = self.job, self.bytes
        window.failure = None
        view = self.files.map_readonly(self.fd, 0, window.end)
        try:
            scanned = self.scan(view, position, expected, window.check)
        except OSError:
            # Some pages cannot be read: scan a copy of the segment that has zeros in their place.
            scanned = self.scan(memoryview(window.read(0, window.end)), position, expected, None)
        ranges = tuple(one for one in scanned.quarantined if one not in job.quarantined)
        if window.has_failed():
            ranges = tuple(replace(one, reason=f"{one.reason} ({window.failure})") for one in ranges)
        return Survey(ranges, scanned.position, scanned.ending, scanned.reason)

    def scan(
        self, view: memoryview, position: int, expected: int, fetch: Callable[[int, int], None] | None
    ) -> ScanResult:
        job = self.job
        scan = SegmentScan(
            view,
            job.base_offset,
            index_interval_bytes=_NO_INDEX_BYTES,
            clean_upto=job.clean_upto,
            limit_offset=job.next_base,
            is_same_boot=job.is_same_boot,
            known=job.quarantined,
            fetch=fetch,
        )
        return scan.run(lambda header, batch: None, replay_from=_NO_REPLAY, position=position, offset=expected)

    def end_of_batches(self, position: int, expected: int, survey: Survey) -> None:
        """End the verification where no batch follows, only reserved space, a torn batch, or damage up to the end."""
        job, size = self.job, self.bytes.end - position
        if survey.ending is Ending.CLEAN and not job.is_truncated:
            self.finish(position)
        elif (
            survey.ending is Ending.TORN
            and not job.is_truncated
            and job.next_base is None
            and expected >= job.known_offset
        ):
            self.add(Kind.TORN, "the last write was never finished", is_sound=True, size_bytes=size)
            self.finish(position)
        else:
            reason = survey.reason or ("a torn batch" if survey.ending is Ending.TORN else "zeros instead of batches")
            self.add(Kind.DAMAGE, reason, size_bytes=size, end_offset=job.next_base)
            self.report.next_offset = max(expected, job.next_base or 0)
            self.finish(self.bytes.end)  # index entries for the damaged bytes cannot be checked

    # --- the index

    def load_index(self) -> None:
        job, report = self.job, self.report
        try:
            data = self.files.read_file(job.index_path)
        except OSError as error:
            if report.position == 0:
                report.add(Finding(Kind.INDEX, job.index_path, f"the file cannot be read: {error}"))
            return
        seal = (data or b"")[-ENTRY_BYTES:]
        if report.position == 0:
            report.seal = seal
        elif seal != report.seal:
            report.is_done = report.is_gone = True
            return
        sealed = decode_sealed(job.base_offset, data or b"", job.size_bytes)
        self.has_valid_seal = sealed is not None
        self.index = sealed[0] if sealed is not None else SparseIndex.decode(job.base_offset, data or b"")
        if report.position == 0:
            self.check_seal(data)

    def check_seal(self, data: bytes | None) -> None:
        job = self.job
        if self.has_valid_seal or (job.next_base is None and not job.is_truncated):
            return
        # A segment with a quarantined range may have no valid seal.
        is_sound = bool(job.quarantined)
        has_seal = len(data or b"") >= ENTRY_BYTES and seal_timestamp((data or b"")[-ENTRY_BYTES:]) is not None
        if has_seal:
            reason = "the seal does not match the index entries and the length of the segment"
        elif job.is_truncated:
            reason = "the seal is missing, although the segment was closed"
        else:
            reason, is_sound = "the segment has no seal yet; the next start reads and seals it", True
        self.report.add(Finding(Kind.SEAL, job.index_path, reason, is_sound=is_sound))

    def check_entries(self, at: int, base_offset: int) -> int:
        """Check the index entries up to the batch at the report's position, whose base offset is ``base_offset``."""
        index, report = self.index, self.report
        while at < len(index) and index.positions[at] <= report.position:
            offset = index.base_offset + index.offsets[at]
            if index.positions[at] < report.position:
                self.add_entry(at, "points into the middle of a batch")
            elif offset != base_offset:
                self.add_entry(at, f"says offset {offset}, the batch there begins at {base_offset}")
            elif index.timestamps[at] < report.max_timestamp:
                self.add_entry(
                    at, f"says timestamp {index.timestamps[at]}, but {report.max_timestamp} occurs before it"
                )
            at += 1
        return at

    def add_entry(self, at: int, reason: str) -> None:
        job, index = self.job, self.index
        # The next start discards the invalid entries of the active segment's index.
        is_sound = job.next_base is None and not job.is_truncated
        offset = index.base_offset + index.offsets[at]
        reason = f"entry {at} {reason}"
        self.report.add(Finding(Kind.INDEX, job.index_path, reason, is_sound, at * ENTRY.size, ENTRY.size, offset))

    # --- aborted transactions

    def load_aborted(self) -> None:
        """Load the transaction index of a closed segment; a file next to an open segment is outdated."""
        job, report = self.job, self.report
        if not job.txn_index_name or not self.has_valid_seal:
            return
        try:
            entries = decode_fitting(self.files.read_file(job.txn_index_path), job.size_bytes)
        except OSError as error:
            entries = None
            reason = f"the file cannot be read: {error}"
        else:
            reason = "the transaction index does not match the segment; it is rebuilt from the batches when needed"
        if entries is not None:
            self.aborted = entries
        elif report.position == 0:
            report.add(Finding(Kind.INDEX, job.txn_index_path, reason))

    def check_marker(self, header: tuple[int, ...], position: int) -> None:
        """Compare the control batch at ``position`` with the transaction index. Report missing markers before it."""
        offset, producer_id = header[0], header[9]
        self.report_missing_markers(offset)
        at = self.report.aborted_count
        if at == len(self.aborted) or self.aborted[at].last_offset > offset:
            return
        marker = read_marker(self.bytes.read(position, header[1] + LENGTH_OVERHEAD))
        if marker is None or marker.is_commit or self.aborted[at].producer_id != producer_id:
            self.add_aborted(at, f"names an ABORT marker at offset {offset}, but another batch is there")
        self.report.aborted_count += 1

    def report_missing_markers(self, offset: int | None) -> None:
        """Report the entries before ``offset``, or all remaining entries if it is None, as entries without a marker."""
        report = self.report
        while report.aborted_count < len(self.aborted):
            at = report.aborted_count
            if offset is not None and self.aborted[at].last_offset >= offset:
                return
            self.add_aborted(at, f"names an ABORT marker at offset {self.aborted[at].last_offset}, but there is none")
            report.aborted_count += 1

    def add_aborted(self, at: int, reason: str) -> None:
        # In a segment with a quarantined range the marker may exist, but be unreadable.
        is_sound, offset = bool(self.job.quarantined), self.aborted[at].last_offset
        self.report.add(
            Finding(Kind.INDEX, self.job.txn_index_path, f"entry {at} {reason}", is_sound=is_sound, offset=offset)
        )

    # --- the end

    def finish(self, end: int) -> None:
        """Finish the report. The last batch, or the last damaged range, ends at ``end``."""
        self.report_missing_markers(None)
        report, job = self.report, self.job
        report.is_done = True
        report.position = self.bytes.end
        for left in range(bisect_left(self.index.positions, end), len(self.index)):
            self.add_entry(left, "points beyond the last batch")
        if job.next_base is not None and max(report.next_offset, job.clean_upto) < job.next_base:
            reason = f"offsets {report.next_offset}..{job.next_base - 1} are missing"
            self.add(Kind.MISSING, reason, position=end, end_offset=job.next_base)
        elif job.next_base is None and report.next_offset < job.known_offset:
            reason = f"the log ends at offset {report.next_offset}, the checkpoint has records up to {job.known_offset}"
            self.add(Kind.MISSING, reason, position=end, end_offset=job.known_offset)

    def add(
        self,
        kind: Kind,
        reason: str,
        *,
        is_sound: bool = False,
        position: int | None = None,
        size_bytes: int = 0,
        end_offset: int | None = None,
    ) -> None:
        report = self.report
        at = report.position if position is None else position
        report.add(Finding(kind, self.job.path, reason, is_sound, at, size_bytes, report.next_offset, end_offset))
