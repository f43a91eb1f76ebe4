"""An HTTP client for JSON and for streams of lines, and functions that declare subcommands with this client."""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

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

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"--http takes http://HOST:PORT, not {url!r}")
        self._url = url
        self._prefix = parts.path.rstrip("/")
        self._connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=REQUEST_TIMEOUT_SECONDS)

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
            self._connection.request(method, self._prefix + path, content, headers)
            response = self._connection.getresponse()
        if response.status >= 400:
            raise Refused(_reason(response))
        return response

    @contextmanager
    def _as_unreachable(self) -> Iterator[None]:
        try:
            yield
        except (HTTPException, OSError) as error:
            reason = f"no HTTP answer: {error!r}" if isinstance(error, HTTPException) else str(error)
            raise Unreachable(f"no answer from {self._url}: {reason}; is the server running?") from error


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
        with closing(HttpClient(options.http)) as client:
            return act(client, options)

    parser = add_subcommand(subcommands, name, purpose, run)
    add_http(parser)
    if has_json:
        add_json(parser)
    return parser


def add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", metavar="URL", default=HTTP_DEFAULT, help=f"the HTTP port (default {HTTP_DEFAULT})")


def _reason(response: HTTPResponse) -> str:
    try:
        error = json.loads(response.read(ANSWER_BYTES_MAX))["error"]
        return f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status} {response.reason}"
