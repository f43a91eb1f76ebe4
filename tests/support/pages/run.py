"""One page, run in a folder of its own with a server of its own."""

import os
import re
from pathlib import Path

from kwire.testing.ports import unused_port
from tests.support.pages.blocks import ROOT, Block, commands_of, steps_of
from tests.support.pages.comparison import is_like, missing_lines
from tests.support.pages.terminal import COLUMNS, Process, password_of
from tests.support.server import kwire_command

_ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):(?P<port>9092|9093|8082|8083|8090|9000)\b")
# Folders of a server that a page names; here they are below the folder of the page.
_PLACE = re.compile(r"(?<![\w./:}])/(?=(?:var/lib/kwire|backups|safe|srv|data|disk\d|etc/kwire)\b)")
_VENV = re.compile(r"\.venv/bin/(?=\w)")
_OF_REPOSITORY = re.compile(r"(?<![\w./-])(?=(?:docs|scripts)/)")
_PASSWORD = re.compile(r"PASSWORD-OF-(?P<user>[A-Z]+)")
_ASSIGNMENT = re.compile(r"(?:export )?(?P<name>[A-Z_]+)=")
_SERVE = re.compile(r"(?:\.venv/bin/)?(?:kwire serve|scripts/serve)\b")
# Commands that read or write the folder of a server that is stopped; pages say "stop the server" before them.
_OF_STOPPED_SERVER = re.compile(r"kwire (?:user|key|log) .*--data-dir")
_NEEDS_NO_SERVER = re.compile(r"kwire (?:tls|backup (?:verify|restore)|completion) |cat >|export ")
_STREAM = re.compile(r"curl -sN |kwire \w+ tail ")
# The first rebalance of a group does not wait for further members.
_QUICK = "--set group.initial.rebalance.delay.ms=0"
_VARIABLES = ".variables"
_LOG = "server.log"


class PageRun:
    """The state of a page while its blocks run: the server, the last output, commands that have no end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kafka, http = unused_port(), unused_port()
        # 9000 is the port of a receiver of webhooks, 8090 that of a bridge.
        more = {"9000": unused_port(), "8090": unused_port()}
        self._ports = {"9092": kafka, "9093": kafka, "8082": http, "8083": http, **more}
        self._server: Process | None = None
        self._endless: Process | None = None
        self._running: list[Process] = []
        self._output = ""
        home = folder / "home"
        home.mkdir()
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith(("KWIRE_", "XDG_"))}
        self._environment |= {"HOME": str(home), "NO_COLOR": "1", "COLUMNS": COLUMNS, "TERM": "xterm"}
        # The jars of Spark, which are fetched once.
        self._environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        # Where the commands of kwire look for a server that they do not name.
        self._environment["KWIRE_BOOTSTRAP_SERVER"] = f"127.0.0.1:{kafka}"
        self._environment["KWIRE_HTTP"] = f"http://127.0.0.1:{http}"
        self._environment["PATH"] = f"{kwire_command().parent}:{os.environ['PATH']}"

    def close(self) -> None:
        for process in self._running:
            process.close()

    def run(self, block: Block) -> None:
        """Run a block, or save it, or compare it with what was printed before."""
        try:
            self._run(block)
        except AssertionError as error:
            raise AssertionError(f"{block.place}: {error}") from error

    def _run(self, block: Block) -> None:
        if block.file_name is not None:
            (self._folder / block.file_name).write_text(self._here(block.content), encoding="utf-8")
        elif block.kind == "text":
            self._compare(block)
        elif block.kind == "console":
            for step in steps_of(block.content):
                self._run_step(step.command, step.output)
        elif block.kind == "python":
            (self._folder / "example.py").write_text(self._here(block.content), encoding="utf-8")
            self._run_commands(["python -u example.py"], block.mark)
        elif block.kind == "sh":
            self._run_commands(commands_of(block.content.splitlines()), block.mark)

    def _run_commands(self, commands: list[str], mark: str) -> None:
        self._output = ""
        for number, command in enumerate(commands, start=1):
            if _SERVE.match(command):
                self._serve(command)
            elif mark == "endless" and number == len(commands):
                self._endless = self._start(command)
            else:
                done = self._start(command).end()
                assert (done.code != 0) == (mark == "fails"), f"{command}: exit code {done.code}\n{done.output}"
                self._output += done.output

    def _run_step(self, command: str, expected: list[str]) -> None:
        expected = [self._here(line) for line in expected]
        process = self._start(command)
        if _STREAM.search(command):
            process.read_until(lambda output: output.count("\n") >= len(expected))
            process.interrupt()
        else:
            process.end()
        lines = process.output.rstrip().splitlines()
        assert len(lines) == len(expected), f"{command}\nprinted:\n{process.output}"
        for one, line in zip(expected, lines, strict=True):
            assert is_like(one, line), f"{command}\nprinted: {line}\nthe page has: {one}"

    def _compare(self, block: Block) -> None:
        expected = [self._here(line) for line in block.content.splitlines() if line.strip()]
        if block.mark == "endless":
            assert self._endless is not None, "no command runs"
            self._endless.read_until(lambda output: not missing_lines(expected, output))
            output = self._endless.output
        else:
            output = self._output
        missing = missing_lines(expected, output)
        assert not missing, "not printed:\n" + "\n".join(missing) + f"\nprinted:\n{output}"

    def _start(self, command: str) -> Process:
        if _OF_STOPPED_SERVER.search(command):
            if self._server is not None:
                self._server.interrupt()
        elif self._server is None and not _NEEDS_NO_SERVER.match(command):
            self._serve("kwire serve")
        command = self._here(command)
        assignment = _ASSIGNMENT.match(command)
        if assignment is not None and "\n" not in command:
            command += f"; declare -p {assignment['name']} >> {_VARIABLES}"
        prefix = f"[ ! -f {_VARIABLES} ] || source {_VARIABLES}; "
        return self._process(prefix + command)

    def _process(self, command: str) -> Process:
        process = Process(command, self._folder, self._environment)
        self._running.append(process)
        return process

    def _serve(self, command: str) -> None:
        """Start a server, in the place of the one that runs, and wait until it is ready."""
        if self._server is not None:
            self._server.interrupt()
        command = _SERVE.sub("kwire serve", command)
        if "--config" not in command:
            command += f" --kafka 127.0.0.1:9092 --http 127.0.0.1:8082 {_QUICK}"
        # Nobody reads the terminal of a server later: its log goes to a file.
        self._server = self._process(f"exec {self._here(command)} 2>>{_LOG}")
        is_ready = self._server.read_until(lambda output: re.search("^ready ", output, re.MULTILINE) is not None)
        assert is_ready, f"the server has not started: {(self._folder / _LOG).read_text()}"

    def _here(self, text: str) -> str:
        """Put the ports, folders and passwords of this run into a text of the page."""
        text = _ADDRESS.sub(lambda match: f"127.0.0.1:{self._ports[match['port']]}", text)
        text = _PLACE.sub(f"{self._folder}/", _VENV.sub("", text))
        text = _OF_REPOSITORY.sub(f"{ROOT}/", text)
        return _PASSWORD.sub(lambda match: password_of(match["user"].lower()), text)
