"""Every command of the first chapter of docs/security.md, run as a person would type it, in the order of the page.

Blocks of properties are saved under the name in their first line. Blocks of `sh` are run in a terminal, line by line;
one that is marked `fails` must fail. The lines of a block of `text` must be in the output of the block before it.
Passwords are typed when a command asks for them.
"""

import os
import pty
import re
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kwire.testing.ports import unused_port
from tests.support.server import kwire_command

pytestmark = pytest.mark.needs_kcat

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
CHAPTER = re.compile(r"\n## From nothing to TLS, logins and ACLs\n(.*?)\n## ", re.DOTALL)
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<mark> fails)?\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(rb"(?:assword of (?P<user>\w+)|same password again): $")
PASSWORDS = {"admin": "s3cr3t-of-the-admin", "app": "s3cr3t-of-the-app"}
COMMAND_TIMEOUT_S = 60.0
# The ten commands; the page goes on with what is refused, lists and deletes.
COMMANDS_MIN = 10


class Block(NamedTuple):
    """A block of the page."""

    kind: str
    must_fail: bool
    content: str


class Outcome(NamedTuple):
    """The end of a command."""

    code: int
    output: str


class Terminal:
    """A terminal in one folder, in which commands run one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("KWIRE_")}
        self._environment["NO_COLOR"] = "1"
        self._environment["PATH"] = f"{kwire_command().parent}:{os.environ['PATH']}"
        self._server: subprocess.Popen[str] | None = None

    def run(self, command: str) -> Outcome:
        """Run a command and type the passwords that it asks for. The output is that of both streams."""
        controlling, terminal = pty.openpty()
        try:
            # A new session whose first process opens a terminal has it as its own; getpass needs such a terminal.
            shell = f"exec <{shlex.quote(os.ttyname(terminal))}; {command}"
            process = subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", shell],
                cwd=self._folder,
                env=self._environment,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
            os.close(terminal)
            with process:
                output = self._typed(process, controlling, command)
                return Outcome(process.wait(COMMAND_TIMEOUT_S), output)
        finally:
            os.close(controlling)

    def _typed(self, process: "subprocess.Popen[bytes]", controlling: int, command: str) -> str:
        output, answered, last = b"", 0, ""
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while select.select([controlling], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                data = os.read(controlling, 65536)
            except OSError:  # how Linux reports that no process has the terminal any longer
                return output.replace(b"\r\n", b"\n").decode()
            output += data
            prompt = PROMPT.search(output, answered)
            if prompt is not None:
                last = prompt["user"].decode() if prompt["user"] else last
                answered = len(output)
                os.write(controlling, f"{PASSWORDS[last]}\n".encode())
        process.kill()
        raise AssertionError(f"no end within {COMMAND_TIMEOUT_S} s: {command}\n{output.decode()}")

    def serve(self, command: str) -> None:
        """Start a server and wait until it is ready."""
        with (self._folder / "server.log").open("w") as log:
            self._server = subprocess.Popen(
                shlex.split(command),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line.startswith("ready "), line + (self._folder / "server.log").read_text()

    def close(self) -> None:
        if self._server is not None:
            with self._server as server:
                server.terminate()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def blocks() -> list[Block]:
    chapter = CHAPTER.search(PAGE.read_text())
    assert chapter is not None
    ports = {"9093": unused_port(), "8082": unused_port()}
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda match: str(ports[match[0]]), chapter[1])
    text = text.replace("PASSWORD-OF-APP", PASSWORDS["app"])
    return [Block(match["kind"], bool(match["mark"]), match["content"]) for match in BLOCK.finditer(text)]


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path, terminal: Terminal) -> None:
    count, output = 0, ""
    for block in blocks():
        if block.kind == "properties":
            name = block.content.partition("\n")[0].removeprefix("# ")
            assert name.endswith(".properties")
            (tmp_path / name).write_text(block.content)
        elif block.kind == "text":
            for line in block.content.splitlines():
                assert line in output, f"{line!r} is not in:\n{output}"
        else:
            assert block.kind == "sh"
            output = ""
            for command in block.content.splitlines():
                count += 1
                if command.startswith("kwire serve "):
                    terminal.serve(command)
                    continue
                done = terminal.run(command)
                assert (done.code != 0) == block.must_fail, f"{command}: exit code {done.code}\n{done.output}"
                output += done.output
    assert count >= COMMANDS_MIN
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "app.properties":
            for password in PASSWORDS.values():
                assert password.encode() not in path.read_bytes(), path
