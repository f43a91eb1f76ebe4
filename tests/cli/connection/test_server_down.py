"""Every verb with a server that is down or is not kwire: a sentence that names the address, no Python, and exit code 2.

`VERBS` has arguments for every verb that talks to a server; a test compares it with the verbs that the program has.
"""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import Done, run_here, run_program
from tests.support.cli_verbs import verbs_of_program

KAFKA, HTTP = "--bootstrap-server", "--http"
TIME_S_MAX = 2.0
CLASS_NAME = re.compile(r"\b\w+(Error|Exception)\b|Traceback|0x[0-9a-f]{6}")

VERBS: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    ("topic", "list"): (KAFKA, ()),
    ("topic", "create"): (KAFKA, ("a",)),
    ("topic", "describe"): (KAFKA, ("a", "b")),
    ("topic", "delete"): (KAFKA, ("a", "b", "--yes")),
    ("topic", "produce"): (KAFKA, ("a",)),
    ("topic", "consume"): (KAFKA, ("a",)),
    ("topic", "export"): (KAFKA, ("a",)),
    ("topic", "import"): (KAFKA, ("a", "--file", "/dev/null", "--format", "csv")),
    ("bench",): (KAFKA, ()),
    ("topic", "alter"): (KAFKA, ("a", "b", "--config", "c=d")),
    ("topic", "add-partitions"): (KAFKA, ("a", "--partitions", "2")),
    ("topic", "trim"): (KAFKA, ("a", "--before", "5", "--yes")),
    ("config", "list"): (KAFKA, ()),
    ("config", "describe"): (KAFKA, ("topic=a", "broker")),
    ("config", "set"): (KAFKA, ("topic=a", "--config", "c=d")),
    ("config", "delete"): (KAFKA, ("topic=a", "--config", "c", "--yes")),
    ("txn", "list"): (KAFKA, ()),
    ("txn", "describe"): (KAFKA, ("a",)),
    ("txn", "producers"): (KAFKA, ("a",)),
    ("txn", "find-hanging"): (KAFKA, ()),
    ("txn", "abort"): (KAFKA, ("a:0", "--start-offset", "5", "--yes")),
    ("txn", "terminate"): (KAFKA, ("a", "--yes")),
    ("quota", "list"): (KAFKA, ()),
    ("quota", "set"): (KAFKA, ("user=a", "--config", "producer_byte_rate=1")),
    ("quota", "delete"): (KAFKA, ("user=a", "--yes")),
    ("group", "list"): (KAFKA, ()),
    ("group", "describe"): (KAFKA, ("a",)),
    ("group", "delete"): (KAFKA, ("a", "--yes")),
    ("group", "reset"): (KAFKA, ("a", "--to-earliest", "--execute")),
    ("group", "export"): (KAFKA, ("a",)),
    ("group", "delete-offsets"): (KAFKA, ("a", "--topic", "a", "--yes")),
    ("user", "create"): (KAFKA, ("a", "--password-stdin")),
    ("user", "list"): (KAFKA, ()),
    ("user", "passwd"): (KAFKA, ("a", "--password-stdin")),
    ("user", "delete"): (KAFKA, ("a", "--yes")),
    ("acl", "add"): (KAFKA, ("--principal", "User:a", "--topic", "a", "--allow", "read")),
    ("acl", "list"): (KAFKA, ()),
    ("acl", "delete"): (KAFKA, ("--topic", "a", "--yes")),
    ("backup", "create"): (HTTP, ("{folder}/backup",)),
    ("cluster", "info"): (HTTP, ()),
    ("cluster", "health"): (HTTP, ()),
    ("key", "create"): (HTTP, ("--scope", "a")),
    ("key", "list"): (HTTP, ()),
    ("key", "alter"): (HTTP, ("a", "--max-events", "5")),
    ("key", "rotate"): (HTTP, ("a",)),
    ("key", "revoke"): (HTTP, ("a", "--yes")),
    ("room", "list"): (HTTP, ()),
    ("room", "create"): (HTTP, ("a",)),
    ("room", "describe"): (HTTP, ("a",)),
    ("room", "delete"): (HTTP, ("a", "--yes")),
    ("room", "publish"): (HTTP, ("a", "1")),
    ("room", "tail"): (HTTP, ("a",)),
    ("room", "history"): (HTTP, ("a",)),
    ("schema", "list"): (HTTP, ()),
    ("schema", "show"): (HTTP, ("a",)),
    ("schema", "register"): (HTTP, ("a", "--file", "{schemas}")),
    ("schema", "check"): (HTTP, ("a", "--file", "{schemas}")),
    ("schema", "delete"): (HTTP, ("a", "--yes")),
    ("event", "publish"): (HTTP, ("a", "1", "--type", "b")),
    ("event", "list"): (HTTP, ("a",)),
    ("event", "tail"): (HTTP, ("a",)),
    ("event", "export"): (HTTP, ("--to", "{folder}", "a")),
    ("event", "import"): (HTTP, ("--from", "{folder}", "a")),
    ("webhook", "list"): (HTTP, ()),
    ("webhook", "create"): (HTTP, ("http://127.0.0.1:9/x", "a")),
    ("webhook", "describe"): (HTTP, ("a",)),
    ("webhook", "update"): (HTTP, ("a", "--url", "http://127.0.0.1:9/x")),
    ("webhook", "delete"): (HTTP, ("a", "--yes")),
    ("webhook", "pause"): (HTTP, ("a",)),
    ("webhook", "resume"): (HTTP, ("a",)),
    ("webhook", "rotate"): (HTTP, ("a",)),
    ("webhook", "deliveries"): (HTTP, ("a",)),
    ("webhook", "dead"): (HTTP, ("a",)),
    ("webhook", "resend"): (HTTP, ("a", "--dead")),
    ("webhook", "replay"): (HTTP, ("a", "--from-beginning")),
    ("webhook", "test"): (HTTP, ("a",)),
}
# `serve` listens. `doctor` reports a server that is down as a finding: tests/cli/test_doctor.py.
NOT_TRIED = {("serve",), ("doctor",)}
EVERY_VERB = pytest.mark.parametrize("verb", VERBS, ids=" ".join)


def run(verb: tuple[str, ...], port: int, folder: Path) -> Done:
    option, arguments = VERBS[verb]
    address = f"http://127.0.0.1:{port}" if option == HTTP else f"127.0.0.1:{port}"
    schemas = folder / "schemas.json"
    schemas.write_text('[{"eventType": "b", "type": "object"}]')
    given = [argument.replace("{folder}", str(folder)).replace("{schemas}", str(schemas)) for argument in arguments]
    return run_here(*verb, *given, option, address)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is taken and refuses connections: nobody listens on its socket."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that reads what comes first on each connection, and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def test_every_verb_with_a_connection_is_tried() -> None:
    connecting = {
        name
        for name, parser in verbs_of_program().items()
        if name[0] != "pipeline" and {KAFKA, HTTP} & set(parser._option_string_actions) and name not in NOT_TRIED
    }
    assert set(VERBS) == connecting


@EVERY_VERB
def test_a_server_that_is_down_is_named_with_a_remedy(verb: tuple[str, ...], tmp_path: Path) -> None:
    started = time.monotonic()
    with closed_port() as port:
        done = run(verb, port, tmp_path)
    option, _ = VERBS[verb]
    address = f"http://127.0.0.1:{port}" if option == HTTP else f"127.0.0.1:{port}"
    assert done.code == 2
    assert done.out == ""
    assert done.errors == (
        f"kwire: nothing listens on {address}; start a server with scripts/serve or kwire serve, "
        f"or name another with {option}\n"
    )
    assert time.monotonic() - started < TIME_S_MAX


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
        b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x01",
        b"\x00\x00\x00\x01\x00",
        b"",
    ],
)
@EVERY_VERB
def test_a_server_that_is_not_ours_is_described_without_python(
    verb: tuple[str, ...], answer: bytes, tmp_path: Path
) -> None:
    with answering(answer) as port:
        done = run(verb, port, tmp_path)
    assert done.code in (1, 2)
    assert done.errors.startswith("kwire: ")
    assert not CLASS_NAME.search(done.errors), done.errors


@pytest.mark.parametrize("verb", [("topic", "list"), ("room", "list")], ids=" ".join)
def test_an_answer_that_is_not_ours_names_the_address(verb: tuple[str, ...], tmp_path: Path) -> None:
    with answering(b"220 mail.example ESMTP\r\n") as port:
        done = run(verb, port, tmp_path)
    assert done.code == 2
    assert f"127.0.0.1:{port}" in done.errors
    assert "check the port" in done.errors


@pytest.mark.parametrize("command", [("topic", "list"), ("room", "list")], ids=" ".join)
def test_a_host_that_drops_packets_is_given_up_within_two_seconds(command: tuple[str, str]) -> None:
    """The backlog of this server is full, so the system ignores further connections, as a firewall does."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        started = time.monotonic()
        option = VERBS[command][0]
        done = run_here(*command, option, f"http://127.0.0.1:{port}" if option == HTTP else f"127.0.0.1:{port}")
        taken = time.monotonic() - started
    assert done.code == 2
    assert done.errors.startswith(f"kwire: no answer from {'http://' if option == HTTP else ''}127.0.0.1:{port}: ")
    assert "within 1.5 s" in done.errors
    assert taken < TIME_S_MAX


def test_the_installed_program_answers_in_time_and_without_a_traceback() -> None:
    with closed_port() as port:
        started = time.monotonic()
        done = run_program("topic", "list", "--bootstrap-server", f"127.0.0.1:{port}")
        taken = time.monotonic() - started
    assert done.code == 2
    assert done.errors.startswith(f"kwire: nothing listens on 127.0.0.1:{port}; ")
    assert taken < TIME_S_MAX
