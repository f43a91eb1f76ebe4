"""Scrub: every closed segment of open and closed logs is read once per interval, and damage is quarantined."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from kwire.broker.maintenance import scrub as scrub_module
from kwire.broker.maintenance.scrub import SLOTS_MAX, Scrub
from kwire.broker.partition import Partition
from kwire.concurrency.worker_process import WorkerProcess
from storage.batch.record_batch import check_batch, parse_header
from storage.errors import QuarantinedRange
from storage.recovery.verify import Finding, Kind, SegmentJob, SegmentReport, verify_segment
from tests.support.batches import make_batch, split_batches
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

P = ParamSpec("P")
R = TypeVar("R")

DAY_MS = 24 * 60 * 60 * 1000
RATE = 1 << 40


class HereWorker:
    """Does the work in this process, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.before_piece: Callable[[], None] = lambda: None

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self.calls.append(function.__name__)
        if function is verify_segment:
            self.before_piece()
        return function(*args, **kwargs)


def start(node: QuietNode, worker: HereWorker | WorkerProcess, *, interval_ms: int = DAY_MS, rate: int = RATE) -> Scrub:
    config = node.config.log._replace(scrub_interval_ms=interval_ms, scrub_bytes_per_second_max=rate)
    return Scrub(node.topics, node.clock, worker, config)


async def whole_interval(node: QuietNode, scrub: Scrub, interval_ms: int = DAY_MS) -> None:
    node.clock.advance(interval_ms)
    await scrub.catch_up()


async def fill(node: QuietNode, name: str = "t", count: int = 60) -> Partition:
    partition = await node.create_partition(name)
    log_of(partition).settings = replace(log_of(partition).settings, segment_bytes=4096)
    for _ in range(count):
        batch = make_batch(2, value=b"v" * 200, timestamp_ms=node.clock.now_ms())
        partition.append(batch, check_batch(batch))
    assert log_of(partition).segment_count >= 3
    return partition


def hurt(partition: Partition, number: int, batch_number: int) -> tuple[Path, int, int]:
    """Change a byte of one batch; (file, position of the batch, its base offset)."""
    segment = list(log_of(partition).segments())[number]
    path = Path(segment.path)
    content = bytearray(path.read_bytes())
    position = 0
    for batch in split_batches(memoryview(bytes(content[: segment.size_bytes])))[:batch_number]:
        position += len(batch)
    offset = parse_header(content, position).base_offset
    content[position + 80] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    return path, position, offset


@in_loop
async def test_a_sound_log_is_read_once_in_an_interval(node: QuietNode) -> None:
    partition = await fill(node)
    scrub = start(node, HereWorker())
    *closed, last = log_of(partition).segments()
    await whole_interval(node, scrub)
    assert scrub.scrubbed_segments == len(closed)
    assert scrub.scrubbed_bytes == sum(segment.size_bytes for segment in closed)
    assert scrub.findings == 0
    await scrub.catch_up()
    assert scrub.scrubbed_segments == len(closed)
    await whole_interval(node, scrub)
    assert scrub.scrubbed_segments == 2 * len(closed)
    assert not last.is_sealed
    await scrub.close()


@in_loop
async def test_damage_becomes_a_quarantine_and_is_told_once(node: QuietNode, caplog: pytest.LogCaptureFixture) -> None:
    partition = await fill(node)
    path, position, offset = hurt(partition, 1, 2)
    scrub = start(node, HereWorker())
    with caplog.at_level(logging.ERROR):
        await whole_interval(node, scrub)
        await whole_interval(node, scrub)
    (found,) = partition.quarantined
    assert (found.segment_base, found.position) == (int(path.stem), position)
    assert (found.start_offset, found.end_offset) == (offset, offset + 2)
    assert scrub.findings == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert str(path) in caplog.text
    with pytest.raises(QuarantinedRange):
        log_of(partition).read(offset, 100_000, partition.log_end_offset)
    await scrub.close()


@in_loop
async def test_logs_that_are_not_open_are_read_without_opening_them(node: QuietNode) -> None:
    partition = await fill(node)
    count = log_of(partition).segment_count
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    scrub = start(node, HereWorker())
    await whole_interval(node, scrub)
    # The last one too: it was closed with the log.
    assert scrub.scrubbed_segments == count
    assert not topic.partitions[0].is_open
    await scrub.close()


@in_loop
async def test_damage_in_a_log_that_is_not_open_is_set_apart(node: QuietNode) -> None:
    _, position, offset = hurt(await fill(node), 1, 2)
    node.restart()
    scrub = start(node, HereWorker())
    await whole_interval(node, scrub)
    topic = node.topics.get("t")
    assert topic is not None
    (found,) = topic.partitions[0].quarantined
    assert (found.position, found.start_offset) == (position, offset)
    await scrub.close()


@in_loop
async def test_an_impossible_header_is_told_once_and_nothing_is_set_apart(
    node: QuietNode, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await fill(node)
    path = Path(next(iter(log_of(partition).segments())).path)
    content = bytearray(path.read_bytes())
    size = parse_header(content).size_bytes
    content[57:61] = (3).to_bytes(4, "big")  # three records in two offsets
    content[17:21] = crc32c(content[21:size]).to_bytes(4, "big")
    path.write_bytes(content)
    scrub = start(node, HereWorker())
    with caplog.at_level(logging.ERROR):
        await whole_interval(node, scrub)
        await whole_interval(node, scrub)
    assert len(caplog.records) == scrub.findings == 1
    assert "impossible header" in caplog.text
    assert partition.quarantined == ()
    await scrub.close()


@in_loop
async def test_a_segment_that_goes_while_it_is_read_is_no_finding(node: QuietNode) -> None:
    partition = await fill(node)
    worker = HereWorker()
    scrub = start(node, worker)
    hurt(partition, 0, 1)
    paths = [Path(segment.path) for segment in log_of(partition).segments()]
    reads = 0

    def remove_after_first_read() -> None:
        nonlocal reads
        reads += 1
        if reads == 2:  # the second look at the first segment
            for path in paths[:-1]:
                path.unlink()

    worker.before_piece = remove_after_first_read
    await whole_interval(node, scrub)
    assert scrub.findings == 0
    assert partition.quarantined == ()
    await scrub.close()


@in_loop
async def test_what_looks_damaged_once_only_is_no_finding(node: QuietNode) -> None:
    partition = await fill(node)
    path, position, _ = hurt(partition, 0, 1)
    bad = path.read_bytes()
    good = bad[: position + 80] + bytes([bad[position + 80] ^ 1]) + bad[position + 81 :]
    worker = HereWorker()
    reads = 0

    def mend() -> None:
        nonlocal reads
        reads += 1
        if reads == 2:
            path.write_bytes(good)

    worker.before_piece = mend
    scrub = start(node, worker)
    await whole_interval(node, scrub)
    assert reads > 2
    assert scrub.findings == 0
    await scrub.close()


@in_loop
async def test_partitions_are_spread_over_the_interval_and_none_is_left_out(node: QuietNode) -> None:
    for number in range(8):
        await fill(node, f"topic-{number}", 20)
    worker = HereWorker()
    scrub = start(node, worker)
    steps = []
    for _ in range(SLOTS_MAX):
        before = scrub.scrubbed_bytes
        node.clock.advance(DAY_MS // SLOTS_MAX + 1)
        await scrub.catch_up()
        if scrub.scrubbed_bytes > before:
            steps.append(scrub.scrubbed_bytes - before)
    assert len(steps) == 8
    assert len(set(steps)) == 1
    await scrub.close()


@in_loop
async def test_a_run_goes_on_where_the_clock_stands(node: QuietNode) -> None:
    """Half an interval in one run and half in the next is everything once."""
    partitions = [await fill(node, f"topic-{number}", 20) for number in range(12)]
    closed = sum(log_of(partition).segment_count - 1 for partition in partitions)
    first = start(node, HereWorker())
    await whole_interval(node, first, DAY_MS // 2)
    await first.close()
    second = start(node, HereWorker())
    await second.catch_up()
    assert 0 < first.scrubbed_segments < closed
    await whole_interval(node, second, DAY_MS - DAY_MS // 2 - DAY_MS // SLOTS_MAX)
    # The slot in which the restart fell is done by both.
    assert closed <= first.scrubbed_segments + second.scrubbed_segments <= closed + 4
    await second.close()


@in_loop
async def test_a_clock_that_jumps_does_no_harm(node: QuietNode) -> None:
    partition = await fill(node)
    closed = log_of(partition).segment_count - 1
    scrub = start(node, HereWorker())
    node.clock.set_wall(node.clock.now_ms() + 1000 * DAY_MS)
    await scrub.catch_up()
    assert scrub.scrubbed_segments == closed
    node.clock.set_wall(node.clock.now_ms() - 1000 * DAY_MS)
    await scrub.catch_up()
    await whole_interval(node, scrub)
    assert scrub.scrubbed_segments == 2 * closed
    await scrub.close()


@in_loop
async def test_reading_is_throttled_between_pieces(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await fill(node)
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real_sleep(0)

    worker = HereWorker()
    scrub = start(node, worker, rate=65536)
    await scrub.close()  # its own pauses are not meant
    scrub._piece_bytes = 1000
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await whole_interval(node, scrub)
    monkeypatch.undo()
    closed_bytes = sum(segment.size_bytes for segment in log_of(partition).segments() if segment.is_sealed)
    assert sum(slept) == pytest.approx(closed_bytes / 65536)
    assert max(slept) <= (1000 + 600) / 65536
    assert worker.calls.count("verify_segment") > closed_bytes // 1600


@in_loop
async def test_a_worker_that_fails_does_not_end_the_scrub(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scrub_module, "START_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(scrub_module, "SLEEP_SECONDS_MAX", 0.001)
    partition = await fill(node)
    closed = log_of(partition).segment_count - 1
    worker = HereWorker()

    def die_once() -> None:
        worker.before_piece = lambda: None
        raise ConnectionError("the worker died")

    worker.before_piece = die_once
    with caplog.at_level(logging.ERROR):
        scrub = start(node, worker, interval_ms=1000)
        async with asyncio.timeout(10):
            while scrub.scrubbed_segments < closed:
                node.clock.advance(100)
                await asyncio.sleep(0.001)
    assert "the worker died" in caplog.text
    await scrub.close()


@in_loop
async def test_it_can_be_switched_off(node: QuietNode) -> None:
    await fill(node)
    scrub = start(node, HereWorker(), interval_ms=-1)
    assert scrub._task is None
    await scrub.close()


@in_loop
async def test_it_works_with_the_real_worker(node: QuietNode) -> None:
    partition = await fill(node)
    _, position, _ = hurt(partition, 1, 2)
    worker = WorkerProcess()
    scrub = start(node, worker)
    await whole_interval(node, scrub)
    await scrub.close()
    await worker.close()
    assert [found.position for found in partition.quarantined] == [position]
    assert scrub.scrubbed_segments == log_of(partition).segment_count - 1


def test_reports_of_a_segment_that_is_gone_say_so(tmp_path: Path) -> None:
    job = SegmentJob(str(tmp_path), 0, "00000000000000000000.log", "00000000000000000000.index", 10)
    assert verify_segment(job, None, 100) == SegmentReport(0, 0, is_done=True, is_gone=True)


@in_loop
async def test_the_number_of_reported_findings_is_bounded(
    node: QuietNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_module, "REPORTED_MAX", 2)
    scrub = start(node, HereWorker())
    for _ in range(2):
        for number in range(4):
            scrub._report(Finding(Kind.DAMAGE, f"/data/t-{number}/0.log", "damaged", position=0))
    assert scrub.findings == 2
    *reported, limit = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in reported] == ["/data/t-0/0.log", "/data/t-1/0.log"]
    assert "2 findings" in limit
    await scrub.close()
