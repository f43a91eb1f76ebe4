"""Runs commands of kwire in terminals, for tests. A process of its own that has all commands loaded.

It reads one JSON object per line, {"arguments": [...], "input": "...", "environment": {...}}, forks a child in a new
pseudo-terminal for it, and answers with {"code": N, "output": "..."}. A fork saves the start of the program, which
would take longer than most commands.
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

COMMAND_SECONDS_MAX = 60.0
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
PROMPT_ENDS = (b"[y/N] ", b": ")
# The exit code of a command that ended with an exception.
CRASHED = 99


class Shown(NamedTuple):
    """The exit code of a command, and everything that its terminal showed."""

    code: int
    output: str


class TerminalRunner:
    """The process that runs commands in terminals, one at a time."""

    def __init__(self) -> None:
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
            self._process.wait(COMMAND_SECONDS_MAX)

    def run(self, *arguments: object, typed: str = "", **environment: str) -> Shown:
        """Run a command. `typed` is what the user types."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": list(map(str, arguments)), "input": typed, "environment": environment}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Shown(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    from tests.support.cli_verbs import verbs_of_program

    verbs_of_program()  # Imports the modules of all commands.
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))._asdict()), flush=True)


def _run(request: dict[str, Any]) -> Shown:
    pid, terminal = pty.fork()
    if pid == 0:
        _run_in_child(request)
    # A line is typed when it is asked for. Questions about passwords discard what was typed before.
    lines = request["input"].splitlines(keepends=True)
    output, deadline = bytearray(), time.monotonic() + COMMAND_SECONDS_MAX
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
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return Shown(os.waitstatus_to_exitcode(status), output.decode(errors="replace"))


def _run_in_child(request: dict[str, Any]) -> None:
    code = CRASHED
    try:
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        os.environ.update({"TERM": "xterm", **request["environment"]})
        os.environ.pop("NO_COLOR", None)
        from kwire.cli import main

        try:
            code = main(request["arguments"])
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
