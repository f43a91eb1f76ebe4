"""An HTTP client for JSON and for streams of lines, and functions that declare subcommands with this client."""

import argparse
import base64
import json
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kwire.cli.client_settings import PASSWORD_VARIABLE, USER_VARIABLE, Login, login_of
from kwire.cli.subcommands import add_json, add_subcommand, reports_failures

HTTP_DEFAULT = "http://127.0.0.1:8082"
REQUEST_TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024


class Refused(ValueError):
    """The server answered with an error. The message is from the server."""


class Unreachable(ConnectionError):
    """The server does not answer, or its response is not HTTP. The message names the server's address."""


class HttpClient:
    """An HTTP client with one connection, for one request at a time."""

    def __init__(self, url: str, login: Login | None = None, ca_file: Path | None = None) -> None:
        """`ca_file` has the certificates that are trusted, as PEM; by default they are the system's."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            # The URL is not shown if it has a password.
            shown = repr(url) if parts.username is None else "a URL with a user: use --user"
            raise ValueError(f"--http takes http://HOST:PORT or https://HOST:PORT, not {shown}")
        self._url = url
        self._prefix = parts.path.rstrip("/")
        self._headers: dict[str, str] = {}
        self._has_login = login is not None
        if login is not None:
            pair = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
            if parts.scheme == "http" and not _is_loopback(parts.hostname):
                print(f"kwire: the password is sent to {parts.hostname} without encryption: use https", file=sys.stderr)
        self._connection = _connection(parts, ca_file)

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the response. Raises Refused or Unreachable."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = self._send(method, path, content, {"Accept": "application/json"})
        with self._as_unreachable():
            answer = response.read(ANSWER_BYTES_MAX)
            try:
                return json.loads(answer)
            except ValueError as error:
                raise HTTPException(f"the answer to {method} {path} is not JSON: {error}") from None

    def fetch(self, path: str) -> bytes:
        """Send a GET and return the undecoded body of the response. Raises Refused or Unreachable."""
        response = self._send("GET", path, None, {"Accept": "application/json"})
        with self._as_unreachable():
            return response.read(ANSWER_BYTES_MAX)

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Send a GET, and yield the JSON object of each line of the response as it arrives."""
        response = self._send("GET", path, None, {"Accept": "application/x-ndjson"})
        while line := self._line(response):
            if line.strip():
                yield json.loads(line)

    def _line(self, response: HTTPResponse) -> bytes:
        """Return the next line. Return b"" at the end of the stream, also if the connection ended within a line."""
        with self._as_unreachable():
            line = response.readline(LINE_BYTES_MAX)
        return line if line.endswith(b"\n") or len(line) == LINE_BYTES_MAX else b""

    def _send(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> HTTPResponse:
        if content is not None:
            headers["Content-Type"] = "application/json"
        with self._as_unreachable():
            self._connection.request(method, self._prefix + path, content, headers | self._headers)
            response = self._connection.getresponse()
        if response.status >= 400:
            reason = _reason(response)
            if response.status == HTTPStatus.UNAUTHORIZED and not self._has_login:
                reason += f"; log in with --user NAME, or {USER_VARIABLE} and {PASSWORD_VARIABLE}"
            raise Refused(reason)
        return response

    @contextmanager
    def _as_unreachable(self) -> Iterator[None]:
        try:
            yield
        except (HTTPException, OSError) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"its certificate is not trusted: {error.verify_message}; name its CA with --cacert"
            elif isinstance(error, HTTPException):
                reason = f"no HTTP answer: {error!r}; is the server running?"
            else:
                reason = f"{error}; is the server running?"
            raise Unreachable(f"no answer from {self._url}: {reason}") from error


def add_http_subcommand(
    subcommands: Any,
    name: str,
    purpose: str,
    act: Callable[[HttpClient, argparse.Namespace], int | None],
    *,
    has_json: bool = True,
) -> argparse.ArgumentParser:
    """Declare a subcommand that calls `act` with an HTTP client and the options.

    If the subcommand fails, `act` raises ValueError.
    """

    @reports_failures(OSError, ValueError)
    def run(options: argparse.Namespace) -> int | None:
        with closing(http_client_of(options)) as client:
            return act(client, options)

    parser = add_subcommand(subcommands, name, purpose, run)
    add_http(parser)
    if has_json:
        add_json(parser)
    return parser


def add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", metavar="URL", default=HTTP_DEFAULT, help=f"the HTTP port (default {HTTP_DEFAULT})")
    parser.add_argument(
        "--user",
        metavar="NAME",
        help=f"log in as this user (default: {USER_VARIABLE}); the password is {PASSWORD_VARIABLE}, or asked for",
    )
    parser.add_argument(
        "--cacert",
        metavar="FILE",
        type=Path,
        help="for https: the trusted CA certificates, as PEM (default: the system's)",
    )


def http_client_of(options: argparse.Namespace) -> HttpClient:
    """Return a client for the options of `add_http`. Raises ValueError."""
    return HttpClient(options.http, login_of(options.user, None, os.environ), options.cacert)


def _connection(parts: SplitResult, ca_file: Path | None) -> HTTPConnection:
    assert parts.hostname is not None
    if parts.scheme == "http":
        if ca_file is not None:
            raise ValueError("--cacert is for https URLs")
        return HTTPConnection(parts.hostname, parts.port or 80, timeout=REQUEST_TIMEOUT_SECONDS)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"--cacert {ca_file}: {error.strerror or error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return HTTPSConnection(parts.hostname, parts.port or 443, timeout=REQUEST_TIMEOUT_SECONDS, context=context)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(response: HTTPResponse) -> str:
    try:
        error = json.loads(response.read(ANSWER_BYTES_MAX))["error"]
        return f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status} {response.reason}"
