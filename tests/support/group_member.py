"""One member of a consumer group as a process: started, watched, asked to leave, or killed.

`tests.support.group_members` says what the programs are told and what they tell.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON_MEMBER = (sys.executable, "-m")
# What runs a member of each family of clients; the topic and its settings follow.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "kafka-python": (*PYTHON_MEMBER, "tests.support.group_members.with_kafka_python"),
    "confluent": (*PYTHON_MEMBER, "tests.support.group_members.with_confluent"),
    "aiokafka": (*PYTHON_MEMBER, "tests.support.group_members.with_aiokafka"),
    "java": (str(REPOSITORY / "compat" / "java" / "group_member"),),
}
END_TIMEOUT_S = 60.0
OUTPUT_TAIL_LINES = 40


class GroupMember:
    """What the member did so far is in its fields; a thread fills them from what the program tells."""

    def __init__(self, family: str, topic: str, settings: Mapping[str, str], log_path: Path) -> None:
        self.name = log_path.stem
        self.log_path = log_path
        # Replaced by each change and never changed itself, because others look at it meanwhile.
        self.owned: frozenset[int] = frozenset()
        # How often partitions came or went.
        self.change_count = 0
        self.processed: dict[int, set[int]] = {}
        # What the server acknowledged, in the order it did.
        self.commits: list[tuple[int, int]] = []
        self.refusals: list[str] = []
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*PROGRAMS[family], topic, *(f"{name}={value}" for name, value in settings.items())],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """Ask the member to end in peace, and wait until it has."""
        assert self._process.stdin is not None
        assert self.is_running, f"{self.name} has ended already\n{self.story()}"
        self._process.stdin.close()
        code = self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        assert code == 0, f"{self.name} ended with {code}\n{self.story()}"

    def kill(self) -> None:
        """End it as a crash does, unless it has ended; what it told before is still read."""
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def freeze(self) -> None:
        """Stop it where it stands, as if its machine stalled."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def story(self) -> str:
        """What it told and where it stands, for the report of a failed test."""
        log = self.log_path.read_text(errors="replace").splitlines()[-OUTPUT_TAIL_LINES:]
        return "\n".join(
            [
                f"member {self.name}: {'running' if self.is_running else 'ended'}, owns {sorted(self.owned)},"
                f" {self.change_count} changes, {len(self.commits)} commits, refused: {self.refusals[-5:]}",
                *log,
            ]
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                word, *rest = line.split()
                self._take(word, rest)

    def _take(self, word: str, rest: list[str]) -> None:
        if word == "processed":
            partition, *offsets = map(int, rest)
            self.processed.setdefault(partition, set()).update(offsets)
        elif word == "committed":
            partition, offset = map(int, rest)
            self.commits.append((partition, offset))
        elif word == "assigned":
            self.owned = self.owned | set(map(int, rest))
            self.change_count += bool(rest)
        elif word == "revoked":
            self.owned = self.owned - set(map(int, rest))
            self.change_count += bool(rest)
        else:
            self.refusals.append(" ".join(rest))
