"""Verifies the hash chain of an audit log on disk, for `kwire log verify`. It reads segment files and changes nothing.

Damaged batches are skipped here, because the verification of segments reports them. The record after a damaged batch
does not fit, which is reported as well.
"""

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.streams.audit.chain import ChainCheck
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import Record, is_intact, parse_header, read_records
from storage.errors import StorageError
from storage.recovery.verify import Finding, Kind, SegmentJob, survey_segment

AUDIT_FOLDER = f"{AUDIT_TOPIC}-0"
# The maximum number of breaks that are reported in detail. Further ones are only counted.
BREAKS_SHOWN_MAX = 20
# The maximum size of a batch, and also of its decompressed records.
BATCH_BYTES_MAX = 512 * 1024 * 1024


class AuditChain(Struct):
    """The result of a verification. `head` is the hash of the last record, in hexadecimal."""

    record_count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    head: str = ""
    break_count: int = 0
    findings: list[Finding] = field(default_factory=list)

    def text(self) -> str:
        """Return one line for people."""
        if self.first_offset is None:
            return f"audit log {AUDIT_TOPIC}: no records"
        records = f"{self.record_count:,} records, offsets {self.first_offset}..{self.last_offset}"
        if not self.break_count:
            return f"audit log {AUDIT_TOPIC}: the hash chain is whole: {records}, last hash {self.head}"
        return f"audit log {AUDIT_TOPIC}: the hash chain first breaks at offset {self.findings[0].offset}: {records}"

    def plain(self) -> dict[str, object]:
        return {
            "records": self.record_count,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "head": self.head,
            "breaks": self.break_count,
            "first_break": self.findings[0].offset if self.findings else None,
        }


def verify_chain(jobs: Sequence[SegmentJob]) -> AuditChain:
    """Verify the chain of the records in these segments, which are in order."""
    check, result = ChainCheck(), AuditChain()
    for job in jobs:
        for records in _batches(job):
            for found in check.check(records):
                result.break_count += 1
                if len(result.findings) < BREAKS_SHOWN_MAX:
                    result.findings.append(Finding(Kind.CHAIN, job.path, found.reason, offset=found.offset))
    result.record_count = check.record_count
    result.first_offset, result.last_offset = check.first_offset, check.last_offset
    result.head = check.head.hex() if check.record_count else ""
    return result


def _batches(job: SegmentJob) -> Iterator[list[Record]]:
    """Yield the records of each intact batch of a segment."""
    try:
        file = open(job.path, "rb")  # noqa: SIM115  closed by the with statement
    except FileNotFoundError:
        return  # Retention of a running server has deleted the segment.
    with file:
        position, offset, size = 0, job.base_offset, os.fstat(file.fileno()).st_size
        while position + HEADER_BYTES <= size:
            file.seek(position)
            head = file.read(HEADER_BYTES)
            size_bytes = parse_header(head).size_bytes
            batch = b""
            if HEADER_BYTES <= size_bytes <= min(size - position, BATCH_BYTES_MAX):
                batch = head + file.read(size_bytes - HEADER_BYTES)
            if batch and is_intact(memoryview(batch)):
                header = parse_header(batch)
                position += size_bytes
                offset = header.last_offset + 1
                try:
                    if not header.is_control:
                        yield list(read_records(batch, BATCH_BYTES_MAX))
                except StorageError:
                    continue
            else:
                # The length field of a damaged batch may be wrong, so the next batch is searched for.
                ranges = survey_segment(job, position, offset).ranges
                end = next((one.end_position for one in ranges if one.position == position and one.size_bytes), size)
                position = end
