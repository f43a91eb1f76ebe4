"""The command line with records: the installed program with pipes or a terminal, and its client in this process."""

import io
import os
import pty
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NamedTuple

from kwire.cli import main
from kwire.cli.connection.settings import ClientSettings, Timeouts
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.transport import cluster_with
from tests.support.server import kwire_command

TIMEOUT_S = 60.0


class Finished(NamedTuple):
    """What a command returned and printed, as bytes: records need not be text."""

    code: int
    out: bytes
    errors: str


def run_data_here(bootstrap: str, *arguments: object, stdin: bytes = b"") -> Finished:
    """Call the function of `kwire` in this process, which saves the start of a process. Descriptor 0 is the input."""
    out, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with _as_input(stdin), redirect_stdout(out), redirect_stderr(errors):
        code = main([*map(str, arguments), "--bootstrap-server", bootstrap])
    out.flush()
    return Finished(code, out.buffer.getvalue(), errors.getvalue())


@contextmanager
def _as_input(stdin: bytes) -> Iterator[None]:
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def run_data(bootstrap: str, *arguments: object, stdin: bytes = b"") -> Finished:
    """Run the installed `kwire` with pipes, to its end."""
    done = subprocess.run(
        [str(kwire_command()), *map(str, arguments), "--bootstrap-server", bootstrap],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr.decode())


def output(bootstrap: str, *arguments: object, stdin: bytes = b"") -> bytes:
    """What a command prints that succeeds."""
    done = run_data_here(bootstrap, *arguments, stdin=stdin)
    assert done.code == 0, done
    return done.out


def cluster(bootstrap: str) -> Cluster:
    """The client of the command line in this process."""
    return cluster_with(ClientSettings(bootstrap, "PLAINTEXT", "PLAIN", None, None, Timeouts()))


class Terminal:
    """A program whose standard streams are a terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.screen = b""

    def type(self, text: bytes) -> None:
        os.write(self._descriptor, text)

    def read_until(self, text: bytes) -> None:
        """Read what the program prints until `text` is among it."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            try:
                self.screen += os.read(self._descriptor, 4096)
            except OSError:
                raise AssertionError(f"the program ended, and {text!r} is not in {self.screen!r}") from None

    def finish(self) -> int:
        """Read the rest, and return the exit code."""
        while True:
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:
                break
            if not data:
                break
            self.screen += data
        return self.process.wait(TIMEOUT_S)


@contextmanager
def terminal(bootstrap: str, *arguments: object) -> Iterator[Terminal]:
    """Run `kwire` in a terminal of its own. It is killed at the end if it still runs."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(kwire_command()), *map(str, arguments), "--bootstrap-server", bootstrap],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # The terminal becomes the controlling one, so that Ctrl-C reaches the program as a signal.
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_S)
        os.close(ours)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
