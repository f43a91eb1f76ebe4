"""A process that is killed while it writes, with real threads: everything it acknowledged is there, once, in order."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage.batch.record_batch import check_batch, parse_header, read_records
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.settings import LogSettings
from tests.support.batches import NOW_MS, make_batch, read_all, split_batches

SETTINGS = LogSettings(segment_bytes=300_000, index_interval_bytes=1000)
TOPIC_ID = bytes(range(16))
ROUNDS = 6
BATCHES_PER_ROUND = 400
KILL_TIMEOUT_S = 60


def open_store(data_dir: Path, threads: ThreadPoolExecutor) -> tuple[LogStore, Log]:
    store = LogStore(str(data_dir), Files(), lambda job: void(threads.submit(job)))
    store.lock()
    return store, store.open_log("killed", 0, TOPIC_ID, SETTINGS)


def void(_: object) -> None:
    pass


def append_next(log: Log) -> int:
    """One batch that continues what is there; its values are its offsets."""
    state = log.producers.get(1)
    sequence = state.next_sequence if state else 0
    value = str(log.log_end_offset).encode() * 40
    batch = make_batch(2, value=value, producer_id=1, producer_epoch=0, base_sequence=sequence)
    appended = log.append(batch, check_batch(batch), 0, NOW_MS)
    assert not appended.is_duplicate
    return appended.last_offset


def write_for_ever(data_dir: str) -> None:
    """The process that is killed: acknowledges each append on its output."""
    with ThreadPoolExecutor(2) as threads:
        _, log = open_store(Path(data_dir), threads)
        while True:
            print(append_next(log), flush=True)


def run_and_kill(data_dir: Path, lines: int) -> int:
    """The last offset that was acknowledged before the process died."""
    code = f"from tests.storage.test_kill import write_for_ever; write_for_ever({str(data_dir)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(KILL_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        with process.stdout:
            acknowledged = -1
            for _ in range(lines):
                acknowledged = int(process.stdout.readline())
            process.kill()
            # What it still said before it died counts as well; its last line may be cut.
            for line in process.stdout:
                if line.endswith("\n"):
                    acknowledged = int(line)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait(KILL_TIMEOUT_S)
    return acknowledged


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    acknowledged = -1
    for number in range(ROUNDS):
        acknowledged = run_and_kill(tmp_path, BATCHES_PER_ROUND + 97 * number)
        # Every second time the next writer finds the log as the killed one left it.
        if number % 2 == 0:
            check(tmp_path, acknowledged)
    check(tmp_path, acknowledged)


def check(data_dir: Path, acknowledged: int) -> None:
    with ThreadPoolExecutor(2) as threads:
        store, log = open_store(data_dir, threads)
        assert log.damage is None
        assert log.log_end_offset > acknowledged
        offset = 0
        for batch in read_all(log):
            header = parse_header(batch)
            assert (header.base_offset, header.base_sequence) == (offset, offset)
            for record in read_records(batch, 0):
                assert record.value == str(header.base_offset).encode() * 40
            offset = header.last_offset + 1
        assert offset == log.log_end_offset
        assert append_next(log) == offset + 1
        assert len(split_batches(log.read(offset, 10_000, offset + 2).view)) == 1
        store.close(is_clean=False)
