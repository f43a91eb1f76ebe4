"""Batches for tests, and logs to put them in."""

from collections.abc import Callable
from pathlib import Path

from storage.batch.record_batch import BatchHeader, Record, build_batch, check_batch, parse_header
from storage.disk.files import Files
from storage.log.log import Appended, Log
from storage.log.settings import Background, LogSettings

NOW_MS = 1_800_000_000_000
BOOT_ID = "00000000-0000-0000-0000-000000000001"


def run_now(job: Callable[[], None]) -> None:
    """Background work that is done before the caller goes on."""
    job()


class UnsyncedFiles(Files):
    """Real files without the wait for the disk, for tests whose machine keeps its power."""

    def fsync(self, fd: int) -> None:
        pass

    def fdatasync(self, fd: int) -> None:
        pass

    def syncfs(self, path: str) -> None:
        pass


class LaterJobs:
    """Background work that is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def __call__(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


def make_batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = 0,
) -> memoryview:
    """A writable batch of ``count`` records, one millisecond apart."""
    records = [Record(None, value, timestamp_ms + number) for number in range(count)]
    return memoryview(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            compression=compression,
        )
    )


def append(log: Log, batch: memoryview | None = None, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    batch = make_batch() if batch is None else batch
    return log.append(batch, check_batch(batch), leader_epoch, now_ms)


def make_log(
    directory: Path,
    *,
    files: Files | None = None,
    background: Background = run_now,
    settings: LogSettings | None = None,
) -> Log:
    """An empty log in an existing directory."""
    return Log(str(directory), files or UnsyncedFiles(), background, settings or LogSettings(), BOOT_ID)


def split_batches(view: memoryview) -> list[memoryview]:
    """The batches in ``view``, which holds nothing else."""
    batches = []
    while view:
        size = parse_header(view).size_bytes
        assert size <= len(view), "the view ends inside a batch"
        batches.append(view[:size])
        view = view[size:]
    return batches


def headers(view: memoryview) -> list[BatchHeader]:
    return [parse_header(batch) for batch in split_batches(view)]


def read_all(log: Log, offset: int | None = None, *, max_bytes: int = 1024 * 1024) -> list[bytes]:
    """Every batch from ``offset`` on, read the way a consumer does."""
    offset = log.log_start_offset if offset is None else offset
    batches: list[bytes] = []
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes, log.log_end_offset)
        assert read.view, f"nothing at {offset} below {log.log_end_offset}"
        assert read.next_offset > offset
        batches.extend(bytes(batch) for batch in split_batches(read.view))
        offset = read.next_offset
    return batches
