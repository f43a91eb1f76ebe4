"""Kafka's command-line tools in one long-lived JVM, so that many calls pay for one start.

`compat/java/ToolServer.java` describes how calls and answers travel. The tools themselves are Kafka's, unchanged.
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


def class_name(tool: str) -> str:
    """The full name of a tool's class; most are in one package, which callers leave out."""
    return tool if tool.startswith(("kafka.", "org.")) else f"org.apache.kafka.tools.{tool}"


class ToolAnswer(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class ToolServer:
    """A JVM that runs tools one after the other, for calls from one thread.

    A call that takes too long kills the JVM and fails; the next call starts another JVM.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = CALL_TIMEOUT_S) -> ToolAnswer:
        """Run a tool as its shell script would."""
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._start()
            timeout_s += START_TIMEOUT_S
        assert process.stdin is not None
        words = [word.encode() for word in (stdin, class_name(tool), *arguments)]
        watchdog = threading.Timer(timeout_s, process.kill)
        watchdog.start()
        try:
            process.stdin.write(
                b"".join([struct.pack(">i", len(words)), *(struct.pack(">i", len(word)) + word for word in words)])
            )
            process.stdin.flush()
            (exit_code,) = struct.unpack(">i", _read(process, 4))
            stdout, stderr = (_read(process, *struct.unpack(">i", _read(process, 4))).decode() for _ in range(2))
        except (OSError, EOFError) as error:
            process.kill()
            # Until it is gone it looks like a JVM that can be called.
            process.wait(STOP_TIMEOUT_S)
            raise AssertionError(f"{tool} {arguments}: no answer within {timeout_s} s, or the JVM ended") from error
        finally:
            watchdog.cancel()
        return ToolAnswer(exit_code, stdout, stderr)

    def run(self, tool: str, *arguments: str) -> str:
        """Standard output of a tool that succeeded and wrote nothing to standard error."""
        answer = self.call(tool, *arguments)
        assert (answer.exit_code, answer.stderr) == (0, ""), f"{tool} {arguments}: {answer}"
        return answer.stdout

    def close(self) -> None:
        """End the JVM; a later call would start another."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(STOP_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()
        self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [str(COMPAT_JAVA / "tool_server")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self._process


def _read(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    read = process.stdout.read(size)
    if len(read) < size:
        raise EOFError
    return read
