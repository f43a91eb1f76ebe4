"""Runs the installed program in terminals, for tests. A process of its own, because a test process has threads, and a
process with threads must not fork.

It reads one JSON object per line, {"arguments": [...], "input": "...", "stop_at": "...", "environment": {...},
"seconds_max": N}, starts the program in a new pseudo-terminal for it, and answers with {"code": N, "output": "..."}.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple, Self

from tests.support.server import kwire_command

COMMAND_SECONDS_MAX = 60.0
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
PROMPT_ENDS = (b"[y/N] ", b": ")
CTRL_C = b"\x03"
# The exit code if the program cannot be started.
NOT_STARTED = 99


class Shown(NamedTuple):
    """The exit code of a command, and everything that its terminal showed."""

    code: int
    output: str


class TerminalRunner:
    """The process that runs commands in terminals, one at a time."""

    def __init__(self, command_seconds_max: float = COMMAND_SECONDS_MAX) -> None:
        self._seconds_max = command_seconds_max
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.terminal_runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(self._seconds_max)

    def run(self, *arguments: object, typed: str = "", stop_at: str = "", **environment: str) -> Shown:
        """Run a command. `typed` is what the user types. When the terminal shows `stop_at`, the user types Ctrl-C."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "arguments": list(map(str, arguments)),
            "input": typed,
            "stop_at": stop_at,
            "environment": environment,
            "seconds_max": self._seconds_max,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Shown(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))._asdict()), flush=True)


def _run(request: dict[str, Any]) -> Shown:
    pid, terminal = pty.fork()
    if pid == 0:
        _run_in_child(request)
    # A line is typed when it is asked for. Questions about passwords discard what was typed before.
    lines = request["input"].splitlines(keepends=True)
    stop_at = request["stop_at"].encode()
    output, deadline = bytearray(), time.monotonic() + request["seconds_max"]
    while len(output) < OUTPUT_BYTES_MAX:
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            os.kill(pid, signal.SIGKILL)
            break
        try:
            data = os.read(terminal, 65536)
        except OSError:
            # Linux reports the end of a terminal in this way.
            break
        if not data:
            break
        output += data
        if lines and output.endswith(PROMPT_ENDS):
            os.write(terminal, lines.pop(0).encode())
        if stop_at and stop_at in output:
            os.write(terminal, CTRL_C)
            stop_at = b""
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return Shown(os.waitstatus_to_exitcode(status), output.decode(errors="replace"))


def _run_in_child(request: dict[str, Any]) -> None:
    try:
        environment = {**os.environ, "TERM": "xterm", **request["environment"]}
        environment.pop("NO_COLOR", None)
        program = str(kwire_command())
        os.execve(program, [program, *request["arguments"]], environment)
    finally:
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    _serve()
