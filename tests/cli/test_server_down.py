"""Commands whose server is down, or is not kwire: a sentence that names the address, exit code 1, no traceback."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import run_here, run_program

HTTP_COMMANDS = [
    ("webhook", "list"),
    ("webhook", "create", "http://127.0.0.1:9/x", "orders"),
    ("webhook", "describe", "wh_1"),
    ("webhook", "test", "wh_1"),
    ("room", "list"),
    ("room", "publish", "r", "1"),
    ("room", "tail", "r"),
]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is taken and refuses connections: nobody listens on its socket."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that reads one request and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


@pytest.mark.parametrize("command", HTTP_COMMANDS, ids=" ".join)
def test_a_server_that_is_down_is_named(command: tuple[str, ...]) -> None:
    with closed_port() as port:
        done = run_here(*command, "--http", f"http://127.0.0.1:{port}")
    assert done.code == 1
    assert done.errors.startswith(f"kwire: no answer from http://127.0.0.1:{port}: ")
    assert done.errors.count("\n") == 1


def test_the_program_prints_no_traceback() -> None:
    with closed_port() as port:
        done = run_program("webhook", "list", "--http", f"http://127.0.0.1:{port}")
    assert done.code == 1
    assert "Traceback" not in done.errors
    assert done.errors.startswith(f"kwire: no answer from http://127.0.0.1:{port}: ")


def test_an_export_names_what_is_wrong(tmp_path: Path) -> None:
    with closed_port() as port:
        done = run_here("event", "export", "--to", tmp_path / "out", "--http", f"http://127.0.0.1:{port}", "orders")
    assert done.code != 0
    assert done.errors.startswith("kwire: ")
    assert "refused" in done.errors


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
        b"",
    ],
)
def test_an_answer_that_is_not_ours_is_named(answer: bytes) -> None:
    with answering(answer) as port:
        done = run_here("webhook", "list", "--http", f"http://127.0.0.1:{port}")
    assert done.code == 1
    assert done.errors.startswith(f"kwire: no answer from http://127.0.0.1:{port}: ")
