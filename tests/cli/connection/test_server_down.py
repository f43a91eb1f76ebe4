"""Every verb with a server that is down or is not kwire: a sentence that names the address, no Python, and exit code 2.

The arguments are those of tests/support/cli_table.py; a test compares it with the verbs that the program has.
"""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kwire.server_addresses import nothing_listens
from tests.support import cli_table
from tests.support.cli import Done, run_here, run_program
from tests.support.cli_table import HTTP, KAFKA
from tests.support.cli_verbs import verbs_of_program

TIME_S_MAX = 2.0
# The import of PySpark takes half a second, and many times that on a busy machine. Kafka clients wait for 30 s.
JOB_TIME_S_MAX = 25.0
CLASS_NAME = re.compile(r"\b\w+(Error|Exception)\b|Traceback|0x[0-9a-f]{6}")

# Arguments of verbs whose usual call would end before it needs the server.
OTHER_CALLS: dict[tuple[str, ...], str] = {
    ("event", "import"): "--from {folder} a",
    ("topic", "import"): "a --file /dev/null --format csv",
    ("topic", "produce"): "a",
}
VERBS = {verb: row.server for verb, row in cli_table.VERBS.items() if row.server}
# `serve` listens. `doctor` reports a server that is down as a finding: tests/cli/test_doctor.py.
NOT_TRIED = {("serve",), ("bridge",), ("doctor",)}
JOBS = [job for job in cli_table.JOBS if job != ("pipeline", "maintain")]
EVERY_VERB = pytest.mark.parametrize("verb", VERBS, ids=" ".join)


def run(verb: tuple[str, ...], port: int, folder: Path) -> Done:
    return run_here(*words(verb, port, folder))


def words(verb: tuple[str, ...], port: int, folder: Path) -> list[str]:
    """Return a call of the verb with a server on this port."""
    (folder / "schemas.json").write_text('[{"eventType": "b", "type": "object"}]')
    call, _ = cli_table.VERBS[verb].piped()
    # ACLs and keys can also be changed without a server.
    call = OTHER_CALLS.get(verb, call).replace("--data-dir {folder}/stopped", "")
    given = call.format(folder=folder, name="a", webhook="w", key="k", producer_id=1).split()
    return [*verb, *given, VERBS[verb], address_of(VERBS[verb], port)]


def address_of(option: str, port: int) -> str:
    return f"http://127.0.0.1:{port}" if option == HTTP else f"127.0.0.1:{port}"


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
        if name not in cli_table.JOBS and {KAFKA, HTTP} & set(parser._option_string_actions) and name not in NOT_TRIED
    }
    assert set(VERBS) == connecting


@EVERY_VERB
def test_a_server_that_is_down_is_named_with_a_remedy(verb: tuple[str, ...], tmp_path: Path) -> None:
    with closed_port() as port:
        done = run_program(*words(verb, port, tmp_path))
        # Measured without the start of a process, which takes long on a busy machine.
        started = time.monotonic()
        assert run(verb, port, tmp_path) == done
        taken = time.monotonic() - started
    option = VERBS[verb]
    assert done.code == 2
    assert done.out == ""
    assert done.errors == f"kwire: {nothing_listens(address_of(option, port), option)}\n"
    assert taken < TIME_S_MAX


@pytest.mark.needs_spark
@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_a_job_reports_a_server_that_is_down_before_it_starts_spark(job: tuple[str, ...], tmp_path: Path) -> None:
    with closed_port() as port:
        servers = (KAFKA, address_of(KAFKA, port), HTTP, address_of(HTTP, port))
        started = time.monotonic()
        needed = ("--topic", "a", "--warehouse", tmp_path) if job[0] == "pipeline" else ()
        done = run_program(*job, *needed, *servers)
        taken = time.monotonic() - started
    assert done.code == 2
    assert done.out == ""
    # The jobs in Spark first check their rights on the Kafka port.
    option = KAFKA if job[0] == "pipeline" else HTTP
    assert done.errors == f"kwire: {nothing_listens(address_of(option, port), option)}\n"
    assert taken < JOB_TIME_S_MAX


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
        option = VERBS[command]
        done = run_here(*command, option, address_of(option, port))
        taken = time.monotonic() - started
    assert done.code == 2
    assert done.errors.startswith(f"kwire: no answer from {'http://' if option == HTTP else ''}127.0.0.1:{port}: ")
    assert "within 1.5 s" in done.errors
    assert taken < TIME_S_MAX


def test_the_installed_program_answers_in_time() -> None:
    with closed_port() as port:
        started = time.monotonic()
        done = run_program("topic", "list", KAFKA, address_of(KAFKA, port))
        taken = time.monotonic() - started
    assert (done.code, done.out) == (2, "")
    assert taken < TIME_S_MAX
