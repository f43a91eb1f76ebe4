"""Measures sync rounds without a server. In each round, one batch is appended to each log, and all logs are synced.

It is a separate program (`python -m benchmark.log.sync_program --help`). It uses kwire's storage directly, because a
server would add the time of its other work.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from benchmark.histogram import Latencies
from benchmark.wire import record_batch
from storage.batch.record_batch import parse_header
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.log.settings import LogSettings
from storage.log.syncing import sync_all

RECORD_BYTES = 1024
ROUNDS_MIN = 10
ROUNDS_MAX = 1000
LOGS_MAX = 5000


@dataclass(frozen=True)
class SyncRounds:
    """The figures of the rounds. The first round is separate, because it also syncs new files and folders."""

    rounds: int
    files: int
    first_ms: float
    begin_ms: float
    latencies: str


def measure(directory: str, log_count: int, seconds: float) -> SyncRounds:
    files = Files()
    with ThreadPoolExecutor(1) as background:

        def in_background(job: object) -> None:
            assert callable(job)
            background.submit(job)

        store = LogStore(directory, files, in_background)
        store.lock()
        settings = LogSettings()
        logs = [store.open_log(f"log-{number}", 0, number.to_bytes(16), settings) for number in range(1, log_count + 1)]
        samples_ns: list[int] = []
        begin_ns: list[int] = []
        file_count = 0
        end = time.perf_counter() + seconds
        while len(samples_ns) <= ROUNDS_MIN or (time.perf_counter() < end and len(samples_ns) < ROUNDS_MAX):
            now_ms = time.time_ns() // 1_000_000
            for log in logs:
                batch = memoryview(bytearray(record_batch(b"x" * RECORD_BYTES, now_ms)))
                log.append(batch, parse_header(batch), 0, now_ms)
            began = time.perf_counter_ns()
            syncs = [sync for log in logs if (sync := log.begin_sync()) is not None]
            asked = time.perf_counter_ns()
            outcomes = sync_all(files, [directory], syncs)
            samples_ns.append(time.perf_counter_ns() - asked)
            begin_ns.append(asked - began)
            file_count = sum(sync.file_count for sync in syncs)
            for sync, failure in zip(syncs, outcomes, strict=True):
                if failure is not None:
                    raise failure
                sync.finish()
        store.close()
    first, *rest = samples_ns
    begin_ms = sorted(begin_ns)[len(begin_ns) // 2] / 1e6
    return SyncRounds(len(rest), file_count, first / 1e6, begin_ms, Latencies.of(rest).encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.log.sync_program", description=__doc__.splitlines()[0])
    parser.add_argument("--directory", required=True, help="an empty directory")
    parser.add_argument("--logs", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    if not 0 < arguments.logs <= LOGS_MAX:
        parser.error(f"1 to {LOGS_MAX} logs")
    json.dump(asdict(measure(arguments.directory, arguments.logs, arguments.seconds)), sys.stdout)


if __name__ == "__main__":
    main()
