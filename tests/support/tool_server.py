"""Kafka's command-line tools in one long-lived JVM: a test of many calls pays for one start.

`compat/java/ToolServer.java` says how calls and answers travel. The tools themselves are Kafka's, unchanged.
"""

import struct
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

COMPAT_JAVA = Path(__file__).resolve().parents[2] / "compat" / "java"
# The first start fetches and compiles.
START_TIMEOUT_S = 600.0
CALL_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class ToolAnswer(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class ToolServer:
    """One JVM. It is called from one thread; a call that takes too long ends it, and with it the wait."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(COMPAT_JAVA / "tool_server")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._timeout_s = START_TIMEOUT_S

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()

    def call(self, tool: str, *arguments: str) -> ToolAnswer:
        """Run a tool of the package `org.apache.kafka.tools` as its shell script would."""
        assert self._process.stdin is not None
        words = [word.encode() for word in (f"org.apache.kafka.tools.{tool}", *arguments)]
        watchdog = threading.Timer(self._timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(
                b"".join([struct.pack(">i", len(words)), *(struct.pack(">i", len(word)) + word for word in words)])
            )
            self._process.stdin.flush()
            (exit_code,) = struct.unpack(">i", self._read(4))
            stdout, stderr = (self._read(*struct.unpack(">i", self._read(4))).decode() for _ in range(2))
        finally:
            watchdog.cancel()
        self._timeout_s = CALL_TIMEOUT_S
        return ToolAnswer(exit_code, stdout, stderr)

    def run(self, tool: str, *arguments: str) -> str:
        """Standard output of a tool that ended well and had nothing to complain about."""
        answer = self.call(tool, *arguments)
        assert (answer.exit_code, answer.stderr) == (0, ""), f"{tool} {arguments}: {answer}"
        return answer.stdout

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        read = self._process.stdout.read(size)
        assert len(read) == size, "the JVM ended before it had answered"
        return read
