"""Every verb of the program succeeds in a terminal: no traceback, colour where it belongs, and none in a pipe.

`VERBS` has the arguments of every verb, in an order in which they succeed one after the other. A test compares it with
the verbs that the program has.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.cli import run_here, run_program
from tests.support.cli_verbs import verbs_of_program
from tests.support.hanging_transactions import leave_hanging
from tests.support.server import Broker, KwireProcess
from tests.support.terminal_runner import Shown, TerminalRunner
from tests.support.transactional_clients.with_confluent import ConfluentClients

# These run until they are stopped, need Spark, or are tried with the processes they need elsewhere.
ELSEWHERE = {("serve",), ("pipeline",), ("wire", "decode"), ("log", "verify"), ("log", "dump"), ("log", "adopt")}
COLOUR = re.compile(r"\x1b\[\d*m")
TABLE_HEAD = re.compile(r"\x1b\[1m[a-z_. ]+\x1b\[0m")


class Call(NamedTuple):
    """How a verb is called, and what the user types."""

    arguments: str
    typed: str = ""
    is_table: bool = False
    code: int = 0


# Verbs of one command depend on each other in this order: what is deleted last was created first.
VERBS: dict[tuple[str, ...], Call] = {
    ("topic", "create"): Call("cli-terminal --partitions 2"),
    ("topic", "list"): Call("", is_table=True),
    ("topic", "alter"): Call("cli-terminal --config retention.ms=3600000"),
    ("topic", "add-partitions"): Call("cli-terminal --partitions 3"),
    ("topic", "describe"): Call("cli-terminal -o wide"),
    ("config", "describe"): Call("topic=cli-terminal", is_table=True),
    ("config", "set"): Call("topic=cli-terminal --config segment.bytes=2000000"),
    ("config", "list"): Call("topic=cli-terminal", is_table=True),
    ("config", "delete"): Call("topic=cli-terminal --config segment.bytes", "y\n"),
    ("topic", "produce"): Call("cli-terminal --file {folder}/lines.txt"),
    ("topic", "consume"): Call("cli-terminal --from earliest --count 1"),
    ("topic", "export"): Call("cli-terminal --file {folder}/records.jsonl"),
    ("topic", "import"): Call("cli-terminal --file {folder}/records.jsonl"),
    ("group", "reset"): Call("cli-terminal --to-earliest --topic cli-terminal --execute", is_table=True),
    ("group", "list"): Call("", is_table=True),
    ("group", "describe"): Call("cli-terminal"),
    ("group", "export"): Call("cli-terminal"),
    ("group", "delete-offsets"): Call("cli-terminal --topic cli-terminal:0", "yes\n"),
    ("group", "delete"): Call("cli-terminal", "y\n"),
    ("txn", "list"): Call("", is_table=True),
    ("txn", "describe"): Call("cli-terminal"),
    ("txn", "producers"): Call("cli-terminal", is_table=True),
    ("txn", "find-hanging"): Call("", is_table=True),
    ("txn", "abort"): Call("cli-terminal:0 --producer-id {producer_id}", "y\n"),
    ("txn", "terminate"): Call("cli-terminal", "y\n"),
    ("topic", "trim"): Call("cli-terminal --before latest", "y\n"),
    ("topic", "delete"): Call("cli-terminal", "y\n"),
    ("quota", "set"): Call("client-id=cli-terminal --config producer_byte_rate=1000000"),
    ("quota", "list"): Call("client-id=cli-terminal", is_table=True),
    ("quota", "delete"): Call("client-id=cli-terminal", "y\n"),
    ("user", "create"): Call("cli-terminal", "secret-word\nsecret-word\n"),
    ("user", "list"): Call("", is_table=True),
    ("user", "passwd"): Call("cli-terminal", "other-word\nother-word\n"),
    ("user", "delete"): Call("cli-terminal", "y\n"),
    ("room", "create"): Call("cli-terminal"),
    ("room", "publish"): Call("cli-terminal 1"),
    ("room", "list"): Call("", is_table=True),
    ("room", "describe"): Call("cli-terminal"),
    ("room", "history"): Call("cli-terminal"),
    ("room", "tail"): Call("cli-terminal --from-offset 0 --count 1"),
    ("room", "delete"): Call("cli-terminal", "y\n"),
    ("schema", "register"): Call("cli-events --file {folder}/schemas.json"),
    ("schema", "list"): Call("", is_table=True),
    ("schema", "show"): Call("cli-events"),
    ("schema", "check"): Call("cli-events --file {folder}/schemas.json"),
    ("event", "publish"): Call("cli-events 1 --type counted"),
    ("event", "list"): Call("cli-events"),
    ("event", "tail"): Call("cli-events --from oldest --count 1"),
    ("event", "export"): Call("cli-events --to {folder}/export"),
    ("event", "verify"): Call("--dir {folder}/export", is_table=True),
    ("event", "pack"): Call("--dir {folder}/export"),
    ("event", "import"): Call("--from {folder}/export"),
    ("webhook", "create"): Call("http://127.0.0.1:9/x cli-events"),
    ("webhook", "list"): Call("", is_table=True),
    ("webhook", "describe"): Call("{webhook}"),
    ("webhook", "update"): Call("{webhook} --url http://127.0.0.1:9/y"),
    ("webhook", "pause"): Call("{webhook}"),
    ("webhook", "resume"): Call("{webhook}"),
    ("webhook", "rotate"): Call("{webhook}"),
    ("webhook", "deliveries"): Call("{webhook}"),
    ("webhook", "dead"): Call("{webhook}"),
    ("webhook", "resend"): Call("{webhook} --dead"),
    ("webhook", "replay"): Call("{webhook} --from-beginning"),
    # Nobody listens at its URL.
    ("webhook", "test"): Call("{webhook}", code=1),
    ("webhook", "delete"): Call("{webhook}", "y\n"),
    ("schema", "delete"): Call("cli-events", "y\n"),
    ("bench",): Call("--records 1000 --seconds 2 --latency-records 10"),
    ("cluster", "info"): Call(""),
    ("cluster", "health"): Call(""),
    ("doctor",): Call(""),
    ("backup", "create"): Call("{folder}/backup"),
    ("backup", "verify"): Call("{folder}/backup"),
    ("backup", "restore"): Call("{folder}/backup {folder}/restored"),
    ("profile", "set"): Call("cli-terminal bootstrap.servers=127.0.0.1:1"),
    ("profile", "list"): Call("", is_table=True),
    ("profile", "show"): Call("cli-terminal"),
    ("profile", "use"): Call("cli-terminal"),
    ("profile", "delete"): Call("cli-terminal", "y\n"),
    ("completion",): Call("bash"),
    ("tls", "init"): Call("--dir {folder}/tls localhost"),
    ("acl", "add"): Call("--data-dir {folder}/stopped --principal User:a --topic a --allow read", is_table=True),
    ("acl", "list"): Call("--data-dir {folder}/stopped", is_table=True),
    ("acl", "delete"): Call("--data-dir {folder}/stopped --topic a", "y\n"),
    ("key", "create"): Call("--data-dir {folder}/stopped --scope a"),
    ("key", "list"): Call("--data-dir {folder}/stopped", is_table=True),
    ("key", "alter"): Call("--data-dir {folder}/stopped {key} --max-events 5"),
    ("key", "rotate"): Call("--data-dir {folder}/stopped {key}"),
    ("key", "revoke"): Call("--data-dir {folder}/stopped {key}", "y\n"),
}


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


@pytest.fixture(scope="module")
def shown(server: KwireProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], Shown]]:
    """What every verb showed in a terminal. All of them use one server, and run once, in the order of `VERBS`."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "schemas.json").write_text('[{"eventType": "counted", "type": "integer"}]')
    (folder / "lines.txt").write_text("one\ntwo\n")
    names = {"folder": str(folder)}
    found: dict[tuple[str, ...], Shown] = {}
    with TerminalRunner() as runner:
        for verb, call in VERBS.items():
            if verb == ("txn", "list"):
                _complete_transaction(server, "cli-terminal")
                names["producer_id"] = str(leave_hanging(Broker(server.bootstrap, server), "cli-terminal")[0])
            found[verb] = runner.run(
                *verb,
                *call.arguments.format(**names).split(),
                typed=call.typed,
                KWIRE_BOOTSTRAP_SERVER=server.bootstrap,
                KWIRE_HTTP=server.http_url,
                KWIRE_CONFIG=str(folder / "profiles.yaml"),
            )
            if verb == ("webhook", "list"):
                names["webhook"] = _id_in(run_here("webhook", "list", "-o", "json", "--http", server.http_url).out)
            if verb == ("key", "list"):
                names["key"] = _id_in(run_here("key", "list", "-o", "json", "--data-dir", folder / "stopped").out)
        yield found


def _complete_transaction(server: KwireProcess, name: str) -> None:
    clients = ConfluentClients(server.bootstrap)
    try:
        producer = clients.producer(name)
        producer.begin()
        producer.send(name, "committed")
        producer.commit()
    finally:
        clients.close()


def _id_in(text: str) -> str:
    """Return the id of the webhook or key that these tests created."""
    ids = [str(row["id"]) for row in json.loads(text)]
    return ids[0] if ids else "missing"


def test_every_verb_is_tried() -> None:
    assert set(VERBS) == {verb for verb in verbs_of_program() if not {verb, verb[:1]} & ELSEWHERE}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_verb_succeeds_in_a_terminal(verb: tuple[str, ...], shown: dict[tuple[str, ...], Shown]) -> None:
    code, output = shown[verb]
    call = VERBS[verb]
    assert code == call.code, output
    assert "Traceback" not in output
    assert "internal error" not in output
    if call.is_table:
        assert TABLE_HEAD.search(output), output
    if call.typed and verb[0] != "user":
        assert "? [y/N] " in output


def test_errors_are_red_in_a_terminal_and_plain_in_a_pipe(server: KwireProcess) -> None:
    arguments = ("topic", "describe", "cli-terminal-missing", "--bootstrap-server", server.bootstrap)
    with TerminalRunner() as runner:
        assert runner.run(*arguments).output.startswith("\x1b[31mkwire:\x1b[0m ")
        assert not COLOUR.search(runner.run(*arguments, TERM="dumb").output)
    assert run_program(*arguments).errors == "kwire: topic cli-terminal-missing does not exist\n"


def test_a_table_in_a_pipe_has_no_colour(server: KwireProcess) -> None:
    done = run_program("topic", "list", "--bootstrap-server", server.bootstrap)
    assert done.code == 0
    assert not COLOUR.search(done.out)


def test_an_answer_other_than_yes_changes_nothing(server: KwireProcess) -> None:
    where = ("--bootstrap-server", server.bootstrap)
    assert run_here("topic", "create", "cli-declined", *where).code == 0
    with TerminalRunner() as runner:
        declined = runner.run("topic", "trim", "cli-declined", "--before", "latest", *where, typed="n\n")
        assert declined.code == 0, "there is nothing to delete, so nothing is asked"
        declined = runner.run("topic", "delete", "cli-declined", *where, typed="n\n")
    assert (declined.code, "nothing was changed" in declined.output) == (1, True)
    assert run_here("topic", "delete", "cli-declined", "--yes", *where).code == 0
