"""Is a segment what it was when it was written? Every batch is read and checked; nothing is changed.

One walk serves ``kwire log verify`` and the scrub of a running server. It goes in pieces: :func:`verify_segment` reads
so many bytes, hands back a report, and takes the report to go on. So whoever calls it keeps the pace, shows progress,
or stops; what is remembered between two pieces is a few numbers, and both job and report can be sent to a process.

Bytes are read, not mapped: a page that the disk cannot deliver is an error here and a fatal signal in a map. It counts
as zeros, so that the walk goes on behind it like behind any other damage. Where something is wrong, the walk of
:mod:`storage.walk` is asked, so that the ranges named here are those that the next start would set apart.
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

from storage.files import Files
from storage.format import (
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
from storage.index import ENTRY, ENTRY_BYTES, NO_MAX_TIMESTAMP, SparseIndex, decode_sealed, seal_timestamp
from storage.markers import read_marker
from storage.quarantine import Quarantine
from storage.txn_index import AbortedEntry, decode_fitting
from storage.walk import Ending, SegmentWalk, Walked

# What one report holds; more are only counted.
FINDINGS_MAX: Final = 200
WINDOW_BYTES: Final = 2 * 1024 * 1024
_PAGE_BYTES: Final = 4096
_SPAN_MAX: Final = 2**32
_NO_INDEX_BYTES: Final = 2**62
_NO_REPLAY: Final = 2**63

_unpack_header = HEADER.unpack_from


class Kind(StrEnum):
    """What can be found. Reports name them by their words."""

    DAMAGE = "damaged bytes"
    MISSING = "missing offsets"
    HEADER = "impossible header"
    INDEX = "index"
    SEAL = "seal"
    CHECKPOINT = "checkpoint"
    UNREADABLE = "unreadable"
    JOURNAL = "journal"
    QUARANTINED = "quarantined"
    TORN = "torn tail"
    UNFINISHED = "unfinished"
    STRAY = "stray file"


class Finding(Struct, frozen=True):
    """``is_sound``: worth knowing, but nothing is lost and the next start deals with it."""

    kind: Kind
    path: str
    reason: str
    is_sound: bool = False
    position: int | None = None
    size_bytes: int = 0
    offset: int | None = None
    end_offset: int | None = None


class SegmentJob(Struct, frozen=True):
    """What is known of a segment before it is read.

    ``next_base``: where the next segment begins, or where the log ends if that is certain. ``known_offset``: records
    below it were there. ``is_cut``: the file ends with its last batch, so nothing else may follow. Batches below
    ``clean_upto`` were compacted: offsets may be left out there.
    """

    directory: str
    base_offset: int
    log_name: str
    index_name: str
    size_bytes: int
    next_base: int | None = None
    known_offset: int = 0
    clean_upto: int = 0
    is_cut: bool = False
    is_same_boot: bool = False
    quarantined: tuple[Quarantine, ...] = ()
    # Empty if there is no such file.
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
    """Made at the first place that is wrong: where the ranges are that cannot be read, and how the segment ends."""

    ranges: tuple[Quarantine, ...]
    end_position: int
    ending: Ending
    reason: str


class SegmentReport(Struct):
    """How far the walk has come and what it has found. ``is_gone``: the file went, or became another, meanwhile."""

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
    # Entries of aborted transactions whose markers were looked for.
    aborted_count: int = 0
    survey: Survey | None = None

    def add(self, finding: Finding) -> None:
        self.finding_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


def verify_segment(
    job: SegmentJob, report: SegmentReport | None, limit_bytes: int, files: Files | None = None
) -> SegmentReport:
    """Check the next ``limit_bytes``, and what it takes to end with a whole batch; None begins at the start."""
    files = files or Files()
    report = report or SegmentReport(0, job.base_offset)
    try:
        fd = files.open_read(job.path)
    except FileNotFoundError:
        report.is_done = report.is_gone = True
        return report
    except OSError as error:
        report.add(Finding(Kind.UNREADABLE, job.path, f"cannot be opened: {error}"))
        report.is_done = True
        return report
    try:
        _Walk(job, report, files, fd).run(limit_bytes)
    finally:
        files.close(fd)
    return report


def verify_segments(
    pack: Sequence[tuple[SegmentJob, SegmentReport | None]], limit_bytes: int
) -> list[SegmentReport | None]:
    """Several one after the other, until the limit is used up; what was not begun stays None."""
    reports: list[SegmentReport | None] = []
    for job, report in pack:
        if limit_bytes > 0 and not (report is not None and report.is_done):
            before = report.position if report is not None else 0
            report = verify_segment(job, report, limit_bytes)
            # An empty file is work too: it is opened and its index is read.
            limit_bytes -= max(report.position - before, _PAGE_BYTES)
        reports.append(report)
    return reports


def survey_segment(job: SegmentJob, position: int, expected: int, files: Files | None = None) -> Survey:
    """What is wrong from ``position`` on, where a batch that begins at ``expected`` is due."""
    files = files or Files()
    fd = files.open_read(job.path)
    try:
        return _Walk(job, SegmentReport(position, expected), files, fd).make_survey(position, expected)
    finally:
        files.close(fd)


class _Window:
    """The bytes of one file, a part of them at a time."""

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
            # Halved until the page is known that cannot be had.
            middle = (position + size // 2 + _PAGE_BYTES - 1) // _PAGE_BYTES * _PAGE_BYTES
            if middle >= position + size:
                middle -= _PAGE_BYTES
            if middle <= position:
                return bytes(size)
            return self.read(position, middle - position) + self.read(middle, position + size - middle)
        # A file that has become shorter under our hands ends in zeros.
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
        """The header fields at ``position``, if so many bytes are there."""
        if position + HEADER_BYTES > self.end:
            return None
        if position < self.start or position + HEADER_BYTES > self.start + len(self.data):
            self.load(position)
        return _unpack_header(self.data, position - self.start)

    def has_failed(self) -> bool:
        return self.failure is not None

    def check(self, start: int, end: int) -> None:
        """Raise ``OSError`` if these bytes cannot be had."""
        while start < end:
            size = min(WINDOW_BYTES, end - start)
            self._files.pread(self._fd, size, start)
            start += size


class _Walk:
    """One piece of one walk."""

    def __init__(self, job: SegmentJob, report: SegmentReport, files: Files, fd: int) -> None:
        self.job = job
        self.report = report
        self.files = files
        self.fd = fd
        self.bytes = _Window(files, fd, job.size_bytes)
        self.offset_limit = job.next_base if job.next_base is not None else job.base_offset + _SPAN_MAX
        self.quarantined = {(one.position, one.start_offset): one for one in job.quarantined}
        self.is_seal_fit = False
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
            self.pass_sound(stop, at)
        if report.position >= self.bytes.end and not report.is_done:
            self.finish(report.position)

    def is_over(self, stop: int) -> bool:
        report = self.report
        if report.is_done:
            return True
        return report.position >= stop and (report.position, report.next_offset) not in self.quarantined

    def pass_sound(self, stop: int, at: int) -> None:
        """The straight way over batches of the window that are as they should be, up to anything that needs a look."""
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

    # --- one batch, or one broken place

    def step(self, at: int) -> int:
        """Go on behind what lies at the report's position; the number of the next index entry."""
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
        header = self.good_batch(position, expected)
        if header is None:
            return self.broken(position, expected)
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

    def good_batch(self, position: int, expected: int) -> tuple[int, ...] | None:
        """The header of the batch at ``position``, if its CRC fits and it is the one that is due."""
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
        # The base offset is not under the CRC, so where offsets were left out the next batch has to bear witness.
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
            self.add(Kind.HEADER, f"codec {attributes & COMPRESSION_MASK} does not exist", end_offset=end_offset)
        elif count > delta + 1 or count < (0 if is_compacted else 1):
            # Fewer is fine: a record may stand for several offsets, as those of the event journal do.
            self.add(Kind.HEADER, f"{count} records in {delta + 1} offsets", end_offset=end_offset)

    def jump(self, position: int, next_offset: int) -> int:
        self.report.position = position
        self.report.next_offset = max(next_offset, self.report.next_offset)
        return bisect_left(self.index.positions, position)

    # --- where there is no good batch

    def broken(self, position: int, expected: int) -> int:
        survey = self.report.survey
        if survey is None:
            survey = self.report.survey = self.make_survey(position, expected)
        for found in survey.ranges:
            if (found.position, found.start_offset) == (position, expected) and found.end_offset > expected:
                kind = Kind.DAMAGE if found.size_bytes else Kind.MISSING
                self.add(kind, found.reason, size_bytes=found.size_bytes, end_offset=found.end_offset)
                return self.jump(found.end_position, found.end_offset)
        self.end_here(position, expected, survey)
        return len(self.index)

    def make_survey(self, position: int, expected: int) -> Survey:
        job, window = self.job, self.bytes
        window.failure = None
        view = self.files.map_readonly(self.fd, 0, window.end)
        try:
            walked = self.walk(view, position, expected, window.check)
        except OSError:
            # Some pages cannot be had: a copy with zeros in their place, for this one segment.
            walked = self.walk(memoryview(window.read(0, window.end)), position, expected, None)
        ranges = tuple(one for one in walked.quarantined if one not in job.quarantined)
        if window.has_failed():
            ranges = tuple(replace(one, reason=f"{one.reason} ({window.failure})") for one in ranges)
        return Survey(ranges, walked.position, walked.ending, walked.reason)

    def walk(self, view: memoryview, position: int, expected: int, fetch: Callable[[int, int], None] | None) -> Walked:
        job = self.job
        walk = SegmentWalk(
            view,
            job.base_offset,
            index_interval_bytes=_NO_INDEX_BYTES,
            clean_upto=job.clean_upto,
            limit_offset=job.next_base,
            is_same_boot=job.is_same_boot,
            known=job.quarantined,
            fetch=fetch,
        )
        return walk.run(lambda header, batch: None, replay_from=_NO_REPLAY, position=position, offset=expected)

    def end_here(self, position: int, expected: int, survey: Survey) -> None:
        """No batch follows: reserved space, a torn batch, or damage up to the end of the file."""
        job, size = self.job, self.bytes.end - position
        if survey.ending is Ending.CLEAN and not job.is_cut:
            self.finish(position)
        elif survey.ending is Ending.TORN and not job.is_cut and job.next_base is None and expected >= job.known_offset:
            self.add(Kind.TORN, "the last write was never finished", is_sound=True, size_bytes=size)
            self.finish(position)
        else:
            reason = survey.reason or ("a batch cut short" if survey.ending is Ending.TORN else "zeros, no batches")
            self.add(Kind.DAMAGE, reason, size_bytes=size, end_offset=job.next_base)
            self.report.next_offset = max(expected, job.next_base or 0)
            self.finish(self.bytes.end)  # what the index says of this place cannot be judged

    # --- the index

    def load_index(self) -> None:
        job, report = self.job, self.report
        try:
            data = self.files.read_file(job.index_path)
        except OSError as error:
            if report.position == 0:
                report.add(Finding(Kind.INDEX, job.index_path, f"cannot be read: {error}"))
            return
        seal = (data or b"")[-ENTRY_BYTES:]
        if report.position == 0:
            report.seal = seal
        elif seal != report.seal:
            report.is_done = report.is_gone = True
            return
        sealed = decode_sealed(job.base_offset, data or b"", job.size_bytes)
        self.is_seal_fit = sealed is not None
        self.index = sealed[0] if sealed is not None else SparseIndex.decode(job.base_offset, data or b"")
        if report.position == 0:
            self.check_seal(data)

    def check_seal(self, data: bytes | None) -> None:
        job = self.job
        if self.is_seal_fit or (job.next_base is None and not job.is_cut):
            return
        # A segment with a broken place may have been kept without a seal of its own.
        is_sound = bool(job.quarantined)
        has_seal = len(data or b"") >= ENTRY_BYTES and seal_timestamp((data or b"")[-ENTRY_BYTES:]) is not None
        if has_seal:
            reason = "the seal does not fit the entries and the length of the segment"
        elif job.is_cut:
            reason = "there is no seal, though the segment was closed"
        else:
            reason, is_sound = "there is no seal yet: the next start reads the segment and seals it", True
        self.report.add(Finding(Kind.SEAL, job.index_path, reason, is_sound=is_sound))

    def check_entries(self, at: int, base_offset: int) -> int:
        """The entries up to the batch at the report's position, which begins at ``base_offset``."""
        index, report = self.index, self.report
        while at < len(index) and index.positions[at] <= report.position:
            offset = index.base_offset + index.offsets[at]
            if index.positions[at] < report.position:
                self.add_entry(at, "points into the middle of a batch")
            elif offset != base_offset:
                self.add_entry(at, f"says offset {offset}, the batch there begins at {base_offset}")
            elif index.timestamps[at] < report.max_timestamp:
                self.add_entry(at, f"says timestamp {index.timestamps[at]}, before it lies {report.max_timestamp}")
            at += 1
        return at

    def add_entry(self, at: int, reason: str) -> None:
        job, index = self.job, self.index
        # The index of an open segment is thrown away where it does not fit, at the next start.
        is_sound = job.next_base is None and not job.is_cut
        offset = index.base_offset + index.offsets[at]
        reason = f"entry {at} {reason}"
        self.report.add(Finding(Kind.INDEX, job.index_path, reason, is_sound, at * ENTRY.size, ENTRY.size, offset))

    # --- aborted transactions

    def load_aborted(self) -> None:
        """Those of a closed segment; of an open one the file, if there is one, tells of an earlier end."""
        job, report = self.job, self.report
        if not job.txn_index_name or not self.is_seal_fit:
            return
        try:
            entries = decode_fitting(self.files.read_file(job.txn_index_path), job.size_bytes)
        except OSError as error:
            entries = None
            reason = f"cannot be read: {error}"
        else:
            reason = "does not fit the segment; what it says is looked for in the batches"
        if entries is not None:
            self.aborted = entries
        elif report.position == 0:
            report.add(Finding(Kind.INDEX, job.txn_index_path, reason))

    def check_marker(self, header: tuple[int, ...], position: int) -> None:
        """A control batch is at ``position``: what the entries say of it, and of markers due before it."""
        offset, producer_id = header[0], header[9]
        self.miss_markers(offset)
        at = self.report.aborted_count
        if at == len(self.aborted) or self.aborted[at].last_offset > offset:
            return
        marker = read_marker(self.bytes.read(position, header[1] + LENGTH_OVERHEAD))
        if marker is None or marker.is_commit or self.aborted[at].producer_id != producer_id:
            self.add_aborted(at, f"names an ABORT marker at offset {offset}, another batch is there")
        self.report.aborted_count += 1

    def miss_markers(self, offset: int | None) -> None:
        """No marker was met for the entries before ``offset``, or for all that are left."""
        report = self.report
        while report.aborted_count < len(self.aborted):
            at = report.aborted_count
            if offset is not None and self.aborted[at].last_offset >= offset:
                return
            self.add_aborted(at, f"names an ABORT marker at offset {self.aborted[at].last_offset}, there is none")
            report.aborted_count += 1

    def add_aborted(self, at: int, reason: str) -> None:
        # In a segment with a broken place the marker may be there, and cannot be read.
        is_sound, offset = bool(self.job.quarantined), self.aborted[at].last_offset
        self.report.add(
            Finding(Kind.INDEX, self.job.txn_index_path, f"entry {at} {reason}", is_sound=is_sound, offset=offset)
        )

    # --- the end

    def finish(self, end: int) -> None:
        """The last batch, or what is in its place, ends at ``end``."""
        self.miss_markers(None)
        report, job = self.report, self.job
        report.is_done = True
        report.position = self.bytes.end
        for left in range(bisect_left(self.index.positions, end), len(self.index)):
            self.add_entry(left, "points behind the last batch")
        if job.next_base is not None and max(report.next_offset, job.clean_upto) < job.next_base:
            reason = f"offsets {report.next_offset}..{job.next_base - 1} are not there"
            self.add(Kind.MISSING, reason, position=end, end_offset=job.next_base)
        elif job.next_base is None and report.next_offset < job.known_offset:
            reason = f"the log ends at {report.next_offset}, the checkpoint knows records up to {job.known_offset}"
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
