"""A terminal in one folder, in which the commands of a page run one after the other, and passwords are typed."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

# A job of Spark takes most of a minute on a busy machine.
COMMAND_TIMEOUT_S = 180.0
COLUMNS = "200"
# What a progress bar has drawn before it erased its line.
_ERASED = re.compile(rb"[^\n]*\r\x1b\[2K")
_PROMPT = re.compile(
    rb"(?:assword (?:of|for user) '?(?P<user>\w+)'?|Repeat the password|sasl\.password|(?P<question>\[y/N\])):? ?$"
)


def password_of(user: str) -> str:
    return f"s3cr3t-of-{user}"


class Outcome(NamedTuple):
    """The end of a command."""

    code: int
    output: str


class Process:
    """A command that runs in a terminal of its own."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self._controlling, terminal = pty.openpty()
        # A new session whose first process opens a terminal has it as its own; getpass needs such a terminal.
        shell = f"exec <{shlex.quote(os.ttyname(terminal))}; {command}"
        self._process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", shell],
            cwd=folder,
            env=environment,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._output = b""
        self._answered = 0
        self._user = "nobody"

    @property
    def output(self) -> str:
        return _ERASED.sub(b"", self._output.replace(b"\r\n", b"\n")).decode()

    def read_until(self, is_enough: Callable[[str], bool]) -> bool:
        """Read and answer questions until the output is enough (True) or the command has ended (False)."""
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not is_enough(self.output):
            if not select.select([self._controlling], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no end within {COMMAND_TIMEOUT_S} s: {self.command}\n{self.output}")
            try:
                self._output += os.read(self._controlling, 65536)
            except OSError:  # how Linux reports that no process has the terminal any longer
                return False
            self._answer()
        return True

    def _answer(self) -> None:
        prompt = _PROMPT.search(self._output, self._answered)
        if prompt is None:
            return
        self._answered = len(self._output)
        if prompt["question"]:
            os.write(self._controlling, b"y\n")
            return
        if prompt["user"]:
            self._user = prompt["user"].decode()
        os.write(self._controlling, f"{password_of(self._user)}\n".encode())

    def end(self) -> Outcome:
        """Wait for the end."""
        self.read_until(lambda _: False)
        return Outcome(self._process.wait(COMMAND_TIMEOUT_S), self.output)

    def interrupt(self) -> None:
        """Do what Ctrl-C does, and wait."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(COMMAND_TIMEOUT_S)

    def close(self) -> None:
        self.interrupt()
        os.close(self._controlling)
