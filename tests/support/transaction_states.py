"""The state of transactions: as the server tells it, and as its log on disk has it while it is down.

The log is read by kafka-python's classes, so that the server is never checked by its own.
"""

import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.record.memory_records import MemoryRecords

from tests.support.server import KwireProcess, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
STATE_TOPIC = "__transaction_state"
# The states by the number that stands for them in the log.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
# Version, producer id, producer epoch and timeout come before the state, in every version of a record.
STATE_POSITION = 2 + 8 + 2 + 4
WATCH_TIMEOUT_S = 90.0
BATCH_HEADER_BYTES = 12


def states_told(bootstrap: str, transactional_ids: Collection[str]) -> dict[str, str]:
    """By transactional id; waits for a server that is still reading its log."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return wait_until(lambda: _states(admin, transactional_ids), "the coordinator answers")
    finally:
        admin.close()


def wait_for_state(bootstrap: str, transactional_id: str, state: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        wait_until(
            lambda: _states(admin, [transactional_id]).get(transactional_id) == state, f"{transactional_id} is {state}"
        )
    finally:
        admin.close()


def _states(admin: KafkaAdminClient, transactional_ids: Collection[str]) -> dict[str, str]:
    """By transactional id; empty while the server is still reading its log."""
    try:
        described = admin.describe_transactions(list(transactional_ids))
    except KafkaError as error:
        if error.retriable:
            return {}
        raise
    return {name: str(one.state.value) for name, one in described.items()}


def states_on_disk(data_dir: Path) -> dict[str, str]:
    """The last state that the log has of each transactional id."""
    states: dict[str, str] = {}
    for path in sorted(data_dir.rglob(f"{STATE_TOPIC}-*/*.log")):
        records = MemoryRecords(_written(path.read_bytes()))
        while records.has_next():
            batch = records.next_batch()
            assert batch is not None
            for record in batch:
                (length,) = struct.unpack_from(">h", record.key, 2)
                name = record.key[4 : 4 + length].decode()
                states[name] = "" if record.value is None else STATES[record.value[STATE_POSITION]]
    return states


def _written(data: bytes) -> bytes:
    """A log file without the zeros that it was extended by, and without a batch that is being written."""
    position = 0
    while position + BATCH_HEADER_BYTES <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if length == 0 or position + BATCH_HEADER_BYTES + length > len(data):
            break
        position += BATCH_HEADER_BYTES + length
    return data[:position]


class KillAtAppend:
    """Kills a server as soon as it appends to this log, and starts it again."""

    def __init__(self, process: KwireProcess, log_path: Path) -> None:
        self._process = process
        position = len(_written(log_path.read_bytes()))
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kill_at_append", str(log_path), str(position), str(process.pid)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        assert self._watcher.stdout is not None
        assert self._watcher.stdout.readline() == b"ready\n"
        self._thread = threading.Thread(target=self._restart, daemon=True)
        self._found: dict[str, str] = {}

    def around(self, call: Callable[[], None]) -> dict[str, str]:
        """The states that the log had of every transactional id when the server was killed, during this call."""
        self._thread.start()
        try:
            call()
            self._thread.join(WATCH_TIMEOUT_S)
        finally:
            self._watcher.kill()
            self._watcher.wait(WATCH_TIMEOUT_S)
            assert self._watcher.stdout is not None
            self._watcher.stdout.close()
        assert self._watcher.returncode == 0, "nothing was appended"
        return self._found

    def _restart(self) -> None:
        self._watcher.wait(WATCH_TIMEOUT_S)
        # It is gone already; this waits until it is.
        self._process.kill()
        self._found = states_on_disk(self._process.data_dir)
        self._process.restart()


def log_path_of(data_dir: Path, topic: str, partition: int) -> Path:
    """The one file of a log that is still small."""
    (path,) = data_dir.rglob(f"{topic}-{partition}/*.log")
    return path


def state_log_of(data_dir: Path, transactional_id: str) -> Path:
    """The log that has the state of this transactional id."""
    (path,) = (
        path
        for path in data_dir.rglob(f"{STATE_TOPIC}-*/*.log")
        if transactional_id.encode() in _written(path.read_bytes())
    )
    return path
