"""The cost of many API keys: `PYTHONPATH=scripts python -m benchmark.access.key_cost [--keys N] [--starts N]`.

It creates the keys in a data directory, then starts servers with and without them in alternation. It prints the time
until a server is ready, its memory at that time, and the time of one login.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from kwire.access.keys.key import Key, KeyLimits
from kwire.access.keys.key_format import Credentials, hash_of, new_key_id, new_secret
from kwire.access.keys.keys import KEYS_MAX, Keys
from kwire.access.keys.stored_key import KEY_PREFIX, value_of
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import Change, EmbeddedMetaStore
from kwire.metastore.interface import ABSENT
from storage.disk.files import Files

KEYS_DEFAULT, STARTS_DEFAULT, STARTS_MAX = 10_000, 5, 100
KEYS_PER_SCOPE = 4
KEYS_PER_COMMIT = 100
LOGINS = 20_000
READY_SECONDS_MAX = 60


class Start(NamedTuple):
    """One start of a server."""

    seconds: float
    memory_mib: float


async def create_keys(data_dir: Path, count: int) -> float:
    """Create keys in a new data directory. Return the microseconds of one login."""
    data_dir.mkdir()
    lanes = DiskLanes()
    metastore = EmbeddedMetaStore.open(str(data_dir), Files(), lanes)
    clock = SystemClock()
    keys = Keys(metastore, clock)
    changes, credentials = [], []
    for number in range(count):
        one = Credentials(new_key_id(), new_secret())
        credentials.append(one)
        key = Key(
            id=one.id,
            scope=await keys.scopes.ensure(f"tenant-{number // KEYS_PER_SCOPE}"),
            is_root=False,
            limits=KeyLimits(max_events=1_000 + number % 10, max_subscriptions=5),
            alias_of=None,
            description="",
            secret_hash=hash_of(one.secret),
            secret_number=1,
            previous_hash=b"",
            previous_until_ms=0,
            created_ms=clock.now_ms(),
            expires_ms=0,
            used_ms=0,
        )
        changes.append(Change(KEY_PREFIX + key.id, value_of(key), ABSENT))
    for at in range(0, count, KEYS_PER_COMMIT):
        await metastore.commit(changes[at : at + KEYS_PER_COMMIT])
    loaded = Keys(metastore, clock)
    began = time.perf_counter()
    for number in range(LOGINS):
        if loaded.log_in(credentials[number * 7919 % count]) is None:
            raise RuntimeError("a key cannot log in")
    seconds = time.perf_counter() - began
    metastore.close()
    lanes.close()
    return seconds / LOGINS * 1e6


def start_server(data_dir: Path) -> Start:
    """Start a server, measure it when it is ready, and stop it."""
    command = [str(Path(sys.executable).with_name("kwire")), "serve", "--data-dir", str(data_dir)]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready"):
                raise RuntimeError("the server did not start")
            seconds = time.perf_counter() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
            (memory_kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        finally:
            process.terminate()
            process.wait(READY_SECONDS_MAX)
    return Start(seconds, memory_kib / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what many API keys cost.")
    parser.add_argument("--keys", type=int, default=KEYS_DEFAULT)
    parser.add_argument("--starts", type=int, default=STARTS_DEFAULT)
    options = parser.parse_args()
    if not 0 < options.keys <= KEYS_MAX or not 0 < options.starts <= STARTS_MAX:
        parser.error(f"1 to {KEYS_MAX} keys, 1 to {STARTS_MAX} starts")
    with tempfile.TemporaryDirectory(prefix="kwire-keys-") as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        asyncio.run(create_keys(few, 1))
        login_us = asyncio.run(create_keys(many, options.keys))
        starts: dict[Path, list[Start]] = {few: [], many: []}
        for _ in range(options.starts):
            for data_dir, found in starts.items():
                found.append(start_server(data_dir))
        seconds = {one: statistics.median(start.seconds for start in found) for one, found in starts.items()}
        memory = {one: statistics.median(start.memory_mib for start in found) for one, found in starts.items()}
        each = (memory[many] - memory[few]) * 1024 * 1024 / options.keys
        print(f"{'':24}{'1 key':>12}{f'{options.keys:,} keys':>16}{'difference':>14}")
        for name, unit, values in (("ready after", "ms", {one: 1000 * s for one, s in seconds.items()}),
                                   ("memory when ready", "MiB", memory)):  # fmt: skip
            print(f"{name:24}{values[few]:>8.1f} {unit:3}{values[many]:>12.1f} {unit:3}"
                  f"{values[many] - values[few]:>10.1f} {unit}")  # fmt: skip
        print(f"memory of a key: {each:.0f} bytes; a login: {login_us:.1f} us")


if __name__ == "__main__":
    main()
