"""Child processes. Every wait for a process has a time limit, and every process is stopped by its own id."""

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

STOP_SECONDS = 30
ERROR_TAIL_CHARACTERS = 2000


class ChildFailed(Exception):
    """A child process ended with an error, did not end in time, or printed something else than expected."""


class Child:
    """A program whose output is read when it ends. The end of the `with` block kills it if it still runs."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self._name = name
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=STOP_SECONDS)

    def await_line(self, timeout_seconds: float) -> None:
        """Wait for the first line of output. The program prints more only after its standard input is closed."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_seconds)
        if not ready:
            raise ChildFailed(f"{self._name}: nothing printed after {timeout_seconds:.0f} s")
        if not self._process.stdout.readline():
            self.finish(STOP_SECONDS)
            raise ChildFailed(f"{self._name}: ended without a line")

    def finish(self, timeout_seconds: float) -> str:
        """Close the program's standard input, wait until the program ends, and return its output."""
        try:
            output, errors = self._process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"{self._name}: not finished after {timeout_seconds:.0f} s") from None
        if self._process.returncode:
            tail = (output + errors)[-ERROR_TAIL_CHARACTERS:]
            raise ChildFailed(f"{self._name}: exit code {self._process.returncode}\n{tail}")
        return output


def run(name: str, argv: Sequence[str], timeout_seconds: float) -> str:
    with Child(name, argv) as child:
        return child.finish(timeout_seconds)


def own_program(module: str, **options: object) -> Child:
    """Start a module of this package as a program. The value `True` is passed as a flag without a value."""
    argv = [sys.executable, "-m", f"benchmark.{module}"]
    for name, value in options.items():
        argv.append("--" + name.replace("_", "-"))
        if value is not True:
            argv.append(str(value))
    return Child(module, argv)


def start_in_background(argv: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a server in its own process group. So Ctrl-C reaches only the benchmark, which then stops the server."""
    # KAFKA_ variables would change settings. Without stored bytecode, kwire would compile its code at each start.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("KAFKA_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    with log_path.open("wb") as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=inherited, process_group=0
        )


def stop(process: subprocess.Popen[bytes], timeout_seconds: float = STOP_SECONDS) -> bool:
    """Send SIGTERM, and kill the process after the timeout. Return whether it ended in time."""
    if process.poll() is not None:
        return True
    process.terminate()
    try:
        process.wait(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        return False
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(timeout=STOP_SECONDS)
