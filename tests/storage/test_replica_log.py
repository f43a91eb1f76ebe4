"""The log of a replica: takes batches with the offsets of their leader, and is cut in place above the committed one."""

import errno
from random import Random

import pytest

from storage.batch.format import LENGTH_OVERHEAD, PLACEMENT
from storage.batch.markers import build_marker
from storage.batch.record_batch import Record, build_batch, parse_header
from storage.errors import DiskFailure, InvalidBatch, StorageFailed, UnexpectedOffset
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.replication.replica_log import ReplicaLog
from tests.support.batches import NOW_MS, make_batch, run_now, split_batches
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
LARGE = LogSettings(index_interval_bytes=100)
FOLDER = "/data/orders-0"
BATCHES = 12


def placed(batch: memoryview | bytearray, offset: int, epoch: int) -> memoryview:
    """The batch as its leader sends it."""
    view = memoryview(bytearray(batch))
    PLACEMENT.pack_into(view, 0, offset, len(view) - LENGTH_OVERHEAD, epoch)
    return view


def history() -> list[memoryview]:
    """Batches of two records of two producers and four leaders, with transactions of which every second is aborted."""
    batches: list[memoryview] = []
    offset = 0
    sequences = [0, 0]
    for number in range(BATCHES):
        producer, epoch = number % 2, number // 3
        if number % 4 >= 2:
            marker = build_marker(producer, 0, 1, number % 8 < 4, NOW_MS + number * 10)
            batches.append(placed(bytearray(marker), offset, epoch))
            offset += 1
            continue
        records = [Record(None, b"value", NOW_MS + number * 10 + one) for one in range(2)]
        batch = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            is_transactional=True,
        )
        sequences[producer] += 2
        batches.append(placed(batch, offset, epoch))
        offset += 2
    return batches


HISTORY = history()
ENDS = [parse_header(batch).last_offset + 1 for batch in HISTORY]


def opened(disk: SimulatedDisk, settings: LogSettings = SMALL) -> ReplicaLog:
    files = SimulatedFiles(disk)
    return ReplicaLog.open(FOLDER, files, run_now, settings, files.boot_id())


def fill(log: ReplicaLog, batches: list[memoryview]) -> None:
    for batch in batches:
        log.append_replicated(batch, parse_header(batch), NOW_MS)
    log.flush()


def staged(settings: LogSettings = SMALL, count: int = BATCHES) -> tuple[SimulatedDisk, ReplicaLog]:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs(FOLDER)
    files.syncfs("/")
    log = opened(disk, settings)
    fill(log, HISTORY[:count])
    log.checkpoint()  # describes what a cut removes
    return disk, log


def content(log: ReplicaLog) -> list[bytes]:
    batches, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        batches.append(log.read_copy(offset))
        offset = parse_header(batches[-1]).last_offset + 1
    return batches


def facts(log: Log) -> dict[str, object]:
    """Everything that a cut has to bring back."""
    end = log.log_end_offset
    return {
        "start": log.log_start_offset,
        "end": end,
        "epochs": log.epochs.entries,
        "sequences": [state.next_sequence if (state := log.producers.get(one)) else None for one in (0, 1)],
        "open": log.producers.open_first_offsets,
        "stable": log.last_stable_offset(end),
        "aborted": log.aborted_between(0, end),
        "timestamps": [log.offset_for_timestamp(NOW_MS + number * 10) for number in range(BATCHES)],
        "largest": log.max_timestamp_offset(),
    }


@pytest.mark.parametrize("settings", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("count", range(1, BATCHES + 1))
def test_a_cut_log_is_as_if_it_had_never_been_longer(count: int, settings: LogSettings) -> None:
    disk, log = staged(settings)
    _, twin = staged(settings, count)
    log.cut(ENDS[count - 1])
    batches = [bytes(batch) for batch in HISTORY]
    for number in range(3):
        assert facts(log) == facts(twin), number
        assert content(log) == batches[:count]
        # Killed, then after a power cut.
        log.close(is_clean=False)
        disk = disk.after_power_cut(Random(count)) if number else disk.restarted()
        log = opened(disk, settings)
        assert (log.damage, log.quarantined) == (None, ())
    fill(log, HISTORY[count:])
    fill(twin, HISTORY[count:])
    assert facts(log) == facts(twin)
    assert content(log) == batches


def test_a_cut_copies_nothing() -> None:
    disk, log = staged(LARGE)
    disk.trace = []
    log.cut(ENDS[-2])
    created = [line for line in disk.trace if line.startswith(("create", "rename")) and ".log" in line]
    assert created == []
    assert any(line.startswith("truncate") for line in disk.trace)


def test_a_log_is_cut_to_nothing_and_continues() -> None:
    disk, log = staged()
    log.cut(0)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (0, 0, 0)
    log = opened(disk.after_power_cut(Random(1)))
    assert (log.log_end_offset, log.damage) == (0, None)
    fill(log, HISTORY)
    assert content(log) == [bytes(batch) for batch in HISTORY]


def test_what_follows_a_cut_is_not_taken_for_what_was_there() -> None:
    for settings in (SMALL, LARGE):
        for seed in range(3):
            disk, log = staged(settings)
            _, twin = staged(settings, 4)
            log.cut(ENDS[3])
            for one in (log, twin):
                for number in range(10):
                    batch = make_batch(3, value=b"other", producer_id=5, producer_epoch=1, base_sequence=number * 3)
                    batch = placed(batch, ENDS[3] + number * 3, 7)
                    one.append_replicated(batch, parse_header(batch), NOW_MS)
                one.flush()
            again = opened(disk.after_power_cut(Random(seed)) if seed else disk.restarted(), settings)
            assert facts(again) == facts(twin)
            assert again.producers.ids == twin.producers.ids
            assert content(again) == content(twin)
            assert (again.damage, again.quarantined) == (None, ())


def test_a_batch_in_the_wrong_place_is_not_kept_by_a_cut() -> None:
    disk, log = staged(SMALL)
    base = [segment.base_offset for segment in log.segments()][1]
    log.cut(base + 1)
    fill_at = placed(make_batch(), base, 9)
    log.append_replicated(fill_at, parse_header(fill_at), NOW_MS)
    log.flush()
    file = disk.file(f"{FOLDER}/{base:020}.log")
    # A misdirected write has put an earlier batch there.
    file.write(memoryview(placed(make_batch(), base - 1, 9)), 0)
    log = opened(disk.restarted(), SMALL)
    log.cut(base)
    assert log.log_end_offset == base
    assert log.segment_count == 1
    log.append_replicated(fill_at, parse_header(fill_at), NOW_MS)
    assert log.read_copy(base) == bytes(fill_at)


def test_a_committed_batch_is_not_cut() -> None:
    _, log = staged()
    log.commit(ENDS[5])
    with pytest.raises(ValueError, match=f"offset {ENDS[4]} is below the committed one, {ENDS[5]}"):
        log.cut(ENDS[4])
    assert content(log) == [bytes(batch) for batch in HISTORY]
    log.cut(ENDS[5])
    assert log.log_end_offset == ENDS[5]


@pytest.mark.parametrize("settings", [SMALL, LARGE], ids=["small", "large"])
def test_readers_end_at_the_committed_offset_and_keep_their_slices(settings: LogSettings) -> None:
    _, log = staged(settings)
    assert not log.read(0, 10_000, log.log_end_offset).view
    log.commit(ENDS[5])
    reads = []
    offset = 0
    while (read := log.read(offset, 10_000, log.log_end_offset)).view:
        reads.append(read)
        offset = read.next_offset
    assert offset == ENDS[5]
    expected = [bytes(read.view) for read in reads]
    log.cut(ENDS[5])
    fill(log, HISTORY[6:])
    assert [bytes(read.view) for read in reads] == expected
    assert [bytes(batch) for read in reads for batch in split_batches(read.view)] == [
        bytes(batch) for batch in HISTORY[:6]
    ]


def test_a_batch_at_another_offset_or_of_an_older_leader_is_refused() -> None:
    _, log = staged(count=6)
    before = content(log)
    for offset in (0, ENDS[5] - 1, ENDS[5] + 1):
        batch = placed(make_batch(), offset, 9)
        with pytest.raises(UnexpectedOffset, match=f"ends at {ENDS[5]}, the batch begins at {offset}"):
            log.append_replicated(batch, parse_header(batch), NOW_MS)
    for epoch in (-1, 0):
        batch = placed(make_batch(), ENDS[5], epoch)
        with pytest.raises(InvalidBatch, match="below the latest one"):
            log.append_replicated(batch, parse_header(batch), NOW_MS)
    assert content(log) == before


def test_a_replica_does_not_check_sequences_again() -> None:
    _, log = staged(count=1)
    # The leader has forgotten an expired producer and takes any sequence.
    batch = placed(make_batch(producer_id=0, producer_epoch=0, base_sequence=77), ENDS[0], 0)
    assert not log.append_replicated(batch, parse_header(batch), NOW_MS).is_duplicate
    state = log.producers.get(0)
    assert state is not None
    assert state.next_sequence == 78


@pytest.mark.parametrize("settings", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("count", [0, 1, 3, 6, 11])
def test_a_crash_at_any_step_leaves_a_log_that_ends_at_the_cut_or_later(count: int, settings: LogSettings) -> None:
    end = ENDS[count - 1] if count else 0
    disk, log = staged(settings)
    start = disk.call_count
    log.cut(end)
    steps = disk.call_count - start
    expected = facts(log)
    batches = [bytes(batch) for batch in HISTORY]
    for is_power_cut in (False, True):
        for step in range(1, steps + 1):
            disk, log = staged(settings)
            disk.crash_at = disk.call_count + step
            with pytest.raises(Crashed):
                log.cut(end)
            disk = disk.after_power_cut(Random(step)) if is_power_cut else disk.restarted()
            again = opened(disk, settings)
            assert (again.damage, again.quarantined) == (None, ())
            found = content(again)
            assert found == batches[: len(found)]
            assert again.log_end_offset == ([0, *ENDS][len(found)]) >= end
            assert again.is_writable
            again.cut(end)
            assert facts(again) == expected
            fill(again, HISTORY[count:])
            again = opened(disk.after_power_cut(Random(step)), settings)
            assert content(again) == batches
            assert (again.damage, again.quarantined) == (None, ())


@pytest.mark.parametrize(
    "operation", ["truncate", "fdatasync", "unlink", "fsync_dir", "rename", "create", "open_write"]
)
@pytest.mark.parametrize("after", range(3))
def test_a_disk_that_fails_leaves_the_log_as_it_was_or_stops_it(operation: str, after: int) -> None:
    disk, log = staged()
    batches = content(log)
    disk.fail_next(operation, errno.EIO, after=after)
    try:
        log.cut(ENDS[3])
    except StorageFailed:
        assert not log.is_writable
    except DiskFailure:
        assert content(log) == batches
        log.cut(ENDS[3])
        assert log.log_end_offset == ENDS[3]
    disk.repair()
    again = opened(disk.restarted())
    found = content(again)
    assert found == batches[: len(found)]
    assert again.log_end_offset >= ENDS[3]
    again.cut(ENDS[3])
    assert content(again) == batches[:4]
