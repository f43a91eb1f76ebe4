"""Every verb of the installed program, in a terminal and in a pipe: success, bad input, several names.

`VERBS` of tests/support/cli_table.py has a row for each verb. All calls of one module use one server, each call runs
once, and the tests look at what it printed. A server that is down: tests/cli/connection/test_server_down.py.
"""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import COMMAND_TIMEOUT_S, Done, run_here, run_program
from tests.support.cli_table import JOBS, VERBS, verbs_with_several_names
from tests.support.cli_verbs import verbs_of_program
from tests.support.hanging_transactions import leave_hanging
from tests.support.server import Broker, KwireProcess, kwire_command
from tests.support.terminal_runner import Shown, TerminalRunner
from tests.support.transactional_clients.with_confluent import ConfluentClients

COLOUR = re.compile(r"\x1b\[\d*m")
TABLE_HEAD = re.compile(r"\x1b\[1m[a-z_. ]+\x1b\[0m")
PYTHON = re.compile(r"\b\w+(Error|Exception)\b|Traceback|internal error|0x[0-9a-f]{6}")
# The verbs that run until they are stopped, and the line that they print before.
READY: dict[tuple[str, ...], str] = {("serve",): "ready kafka=", ("bridge",): "ready http="}

Names = dict[str, str]
VerbName = tuple[str, ...]
# The first test of each kind waits for the calls of all verbs: 10 s, and many times that on a busy machine.
pytestmark = pytest.mark.timeout(600)
EVERY_VERB = pytest.mark.parametrize("verb", VERBS, ids=" ".join)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server of its own, whose webhooks may use http and local addresses."""
    settings = {
        "kwire.webhooks.allow.http": "true",
        "kwire.webhooks.allow.private": "true",
        "kwire.webhooks.ports": "*",
    }
    process = KwireProcess(tmp_path_factory.mktemp("server"), settings=settings)
    process.start()
    try:
        process.ready()
        yield process
        assert process.stop() == 0
    finally:
        process.kill()


class World:
    """The names that the calls of one sequence use, and the environment in which they run."""

    def __init__(self, server: KwireProcess, folder: Path, name: str) -> None:
        (folder / "schemas.json").write_text('[{"eventType": "counted", "type": "integer"}]')
        (folder / "lines.txt").write_text("one\ntwo\n")
        self.server = server
        self.folder = folder
        self.names: Names = {
            "folder": str(folder),
            "name": name,
            "bootstrap": server.bootstrap,
            "long": "x" * 300,
            "webhook": "",
            "key": "",
            "producer_id": "",
        }
        self.environment = {
            "KWIRE_BOOTSTRAP_SERVER": server.bootstrap,
            "KWIRE_HTTP": server.http_url,
            "KWIRE_CONFIG": str(folder / "profiles.yaml"),
        }

    def words(self, verb: VerbName, arguments: str) -> list[str]:
        return [*verb, *(word.format(**self.names) for word in arguments.split())]

    def before(self, verb: VerbName) -> None:
        """Prepare what no verb of the program creates."""
        if verb == ("txn", "list"):
            _complete_transaction(self.server, self.names["name"])
            broker = Broker(self.server.bootstrap, self.server)
            self.names["producer_id"] = str(leave_hanging(broker, self.names["name"])[0])

    def after(self, verb: VerbName) -> None:
        """Remember the ids of what a verb has created."""
        if verb == ("webhook", "create"):
            self.names["webhook"] = _last_id("webhook", "--http", self.server.http_url)
        if verb == ("key", "create"):
            self.names["key"] = _last_id("key", "--data-dir", str(self.folder / "stopped"))


def _complete_transaction(server: KwireProcess, name: str) -> None:
    clients = ConfluentClients(server.bootstrap)
    try:
        producer = clients.producer(name)
        producer.begin()
        producer.send(name, "committed")
        producer.commit()
    finally:
        clients.close()


def _last_id(command: str, *where: str) -> str:
    return str(json.loads(run_here(command, "list", "-o", "json", *where).out)[-1]["id"])


def _in_order(world: World, call: Callable[[VerbName], Done | Shown]) -> dict[VerbName, Done | Shown]:
    found = {}
    for verb in VERBS:
        world.before(verb)
        found[verb] = call(verb)
        world.after(verb)
    return found


@pytest.fixture(scope="module")
def shown(server: KwireProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[VerbName, Shown]:
    """What every verb showed in a terminal."""
    world = World(server, tmp_path_factory.mktemp("terminal"), "in-terminal")
    with TerminalRunner() as runner:

        def call(verb: VerbName) -> Shown:
            row = VERBS[verb]
            stop_at = READY.get(verb, "")
            words = world.words(verb, row.call)
            return runner.run(*words, typed=row.typed, stop_at=stop_at, **world.environment)

        return _in_order(world, call)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def piped_world(server: KwireProcess, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(server, tmp_path_factory.mktemp("pipe"), "in-pipe")


@pytest.fixture(scope="module")
def piped(piped_world: World) -> dict[VerbName, Done]:
    """What every verb printed into pipes."""
    return _in_order(piped_world, lambda verb: _piped(piped_world, verb))  # type: ignore[return-value]


def _piped(world: World, verb: VerbName) -> Done:
    arguments, given = VERBS[verb].piped()
    words = world.words(verb, arguments)
    return _served(words) if verb in READY else run_program(*words, given=given, **world.environment)


def _served(words: list[str]) -> Done:
    """Run a server with pipes, and stop it when it is ready."""
    with subprocess.Popen(
        [str(kwire_command()), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    return Done(process.returncode, ready + out, errors)


@pytest.fixture(scope="module")
def of_several(server: KwireProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[VerbName, Done]:
    """What the verbs with several names printed, the first of which fails."""
    world = World(server, tmp_path_factory.mktemp("several"), "of-several")

    def call(verb: VerbName) -> Done:
        # The calls that create what the next verbs use succeed before.
        if verb in SEVERAL and verb != ("group", "reset"):
            return run_program(*world.words(verb, VERBS[verb].several), **world.environment)
        if not any(several[0] == verb[0] for several in SEVERAL):
            return Done(0, "", "")
        done = _piped(world, verb)
        return run_program(*world.words(verb, VERBS[verb].several), **world.environment) if verb in SEVERAL else done

    return _in_order(world, call)  # type: ignore[return-value]


SEVERAL = [verb for verb, row in VERBS.items() if row.several]


def test_every_verb_has_a_row() -> None:
    assert {*VERBS, *JOBS} == set(verbs_of_program())
    assert set(SEVERAL) == verbs_with_several_names()


@EVERY_VERB
def test_a_verb_succeeds_in_a_terminal(verb: VerbName, shown: dict[VerbName, Shown]) -> None:
    row, (code, output) = VERBS[verb], shown[verb]
    assert code == row.code, output
    assert not PYTHON.search(output), output
    if row.is_table:
        assert TABLE_HEAD.search(output), output
    if row.typed and verb[0] != "user":
        assert "? [y/N] " in output


@EVERY_VERB
def test_a_verb_succeeds_in_a_pipe(verb: VerbName, piped: dict[VerbName, Done]) -> None:
    row, done = VERBS[verb], piped[verb]
    assert done.code == row.code, done
    assert not PYTHON.search(done.errors), done.errors
    assert not COLOUR.search(done.out + done.errors)
    assert "\r" not in done.out + done.errors, "progress bars are for terminals"
    assert done.out or verb in (("topic", "produce"), ("topic", "import"), ("topic", "export")), done.errors


@pytest.mark.parametrize("verb", SEVERAL, ids=" ".join)
def test_a_verb_goes_on_after_a_name_that_fails(verb: VerbName, of_several: dict[VerbName, Done]) -> None:
    row, done = VERBS[verb], of_several[verb]
    assert done.code == 1, done
    assert row.failure.format(name="of-several") in done.errors
    assert done.errors.startswith("kwire: ")
    assert not PYTHON.search(done.errors), done.errors
    assert done.out, "the name that does not fail was not done"


@pytest.fixture(scope="module")
def refusing(piped: dict[VerbName, Done], piped_world: World) -> World:
    """The directories that the calls with pipes have made, and topics for calls with bad input."""
    setup = ("--bootstrap-server", piped_world.server.bootstrap)
    assert run_here("topic", "create", "in-pipe", "--partitions", "3", *setup).code == 0
    schemas = ("--file", piped_world.folder / "schemas.json", "--http", piped_world.server.http_url)
    assert run_here("schema", "register", "events-in-pipe", *schemas).code == 0
    return piped_world


@pytest.mark.parametrize(
    "verb",
    [*VERBS, *(pytest.param(job, marks=pytest.mark.needs_spark) for job in JOBS)],
    ids=[" ".join(verb) for verb in (*VERBS, *JOBS)],
)
def test_bad_input_is_refused_with_a_reason(verb: VerbName, refusing: World) -> None:
    bad = JOBS[verb] if verb in JOBS else VERBS[verb].refused
    done = run_program(*refusing.words(verb, bad.arguments), **refusing.environment)
    assert done.code == bad.code, done
    assert bad.message.format(**refusing.names) in done.errors
    assert done.errors.startswith("kwire: ")
    assert done.out == ""
    assert not PYTHON.search(done.errors), done.errors


def test_errors_are_red_in_a_terminal_and_plain_in_a_pipe(server: KwireProcess) -> None:
    arguments = ("topic", "describe", "missing", "--bootstrap-server", server.bootstrap)
    with TerminalRunner() as runner:
        assert runner.run(*arguments).output.startswith("\x1b[31mkwire:\x1b[0m ")
        assert not COLOUR.search(runner.run(*arguments, TERM="dumb").output)
    assert run_program(*arguments).errors == "kwire: topic missing does not exist\n"


def test_an_answer_other_than_yes_changes_nothing(server: KwireProcess) -> None:
    where = ("--bootstrap-server", server.bootstrap)
    assert run_here("topic", "create", "cli-declined", *where).code == 0
    with TerminalRunner() as runner:
        declined = runner.run("topic", "trim", "cli-declined", "--before", "latest", *where, typed="n\n")
        assert declined.code == 0, "there is nothing to delete, so nothing is asked"
        declined = runner.run("topic", "delete", "cli-declined", *where, typed="n\n")
    assert (declined.code, "nothing was changed" in declined.output) == (1, True)
    assert run_here("topic", "delete", "cli-declined", "--yes", *where).code == 0
