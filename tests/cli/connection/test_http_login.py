"""Commands over HTTP that log in, and over https."""

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.access_commands import json_of, succeeded
from tests.support.cli import run_here
from tests.support.server import KwireProcess

PASSWORD = "s3cr3t:of the test"
ROOMS = b'{"rooms": [], "next": null}'


@contextmanager
def recorded(status: bytes, body: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that answers one request, and the request that it received."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                requests.append(connection.recv(65536))
                head = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
                connection.sendall(head + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        thread.join(10)


@pytest.mark.parametrize("arguments", [(), ("--user", "alice")])
def test_the_login_is_sent(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not arguments:
        monkeypatch.setenv("KWIRE_USER", "alice")
    monkeypatch.setenv("KWIRE_PASSWORD", PASSWORD)
    with recorded(b"200 OK", ROOMS) as (url, requests):
        assert json_of("room", "list", "--http", url, *arguments) == []
    pair = base64.b64encode(f"alice:{PASSWORD}".encode())
    assert b"\r\nAuthorization: Basic " + pair + b"\r\n" in requests[0]


def test_without_a_user_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KWIRE_PASSWORD", PASSWORD)
    with recorded(b"401 Unauthorized", b"") as (url, requests):
        done = run_here("room", "list", "--http", url)
    assert b"authorization" not in requests[0].lower()
    assert done.code == 1
    assert "401 Unauthorized; log in with --user NAME, or KWIRE_USER and KWIRE_PASSWORD" in done.errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--http", "http://127.0.0.1:1", "--user", "bob"), "the password of user bob is missing: set KWIRE_PASSWORD"),
        (("--http", "http://alice:s3cr3t@127.0.0.1:1"), "not a URL with a user: use --user"),
        (("--http", "ftp://127.0.0.1:1"), "--http takes http://HOST:PORT or https://HOST:PORT"),
        (("--http", "http://127.0.0.1:1", "--cacert", "ca.pem"), "--cacert is for https URLs"),
        (("--http", "https://127.0.0.1:1", "--cacert", "missing.pem"), "--cacert missing.pem: No such file"),
    ],
)
def test_wrong_options_are_explained(arguments: tuple[str, ...], problem: str) -> None:
    done = run_here("room", "list", *arguments)
    assert done.code == 2
    assert problem in done.errors
    assert "s3cr3t" not in done.errors


def test_a_certificate_is_verified(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    succeeded(run_here("tls", "init", "--dir", tls, "127.0.0.1"))
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{tls}/server.pem",
        "kwire.http.tls": "true",
    }
    process = KwireProcess(tmp_path, settings=settings)
    process.start()
    try:
        process.ready()
        url = f"https://127.0.0.1:{process.http_port}"
        assert json_of("room", "list", "--http", url, "--cacert", tls / "ca.pem") == []
        done = run_here("room", "list", "--http", url)
        assert done.code == 2
        assert done.errors.startswith(f"kwire: no answer from {url}: its certificate is not trusted: ")
        assert "name its CA with --cacert" in done.errors
    finally:
        process.kill()
