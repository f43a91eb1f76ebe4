"""The HTTP port of a running server, as commands use it: one request, one JSON answer, or lines without end."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

REQUEST_TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024


class Refused(ValueError):
    """The server's own sentence about what is wrong."""


class Unreachable(Exception):
    """Nobody answers, or not in HTTP."""


class HttpClient:
    """Not more than one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"--http takes http://HOST:PORT, not {url!r}")
        self._prefix = parts.path.rstrip("/")
        self._connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=REQUEST_TIMEOUT_SECONDS)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What is answered; raises Refused or Unreachable."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = self._send(method, path, content, {"Accept": "application/json"})
        with _as_unreachable():
            answer = response.read(ANSWER_BYTES_MAX)
            try:
                return json.loads(answer)
            except ValueError as error:
                raise HTTPException(f"the answer to {method} {path} is not JSON: {error}") from None

    def fetch(self, path: str) -> bytes:
        """The same of a GET, as it came."""
        response = self._send("GET", path, None, {"Accept": "application/json"})
        with _as_unreachable():
            return response.read(ANSWER_BYTES_MAX)

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """JSON objects as they come, until the server or somebody else ends it."""
        response = self._send("GET", path, None, {"Accept": "application/x-ndjson"})
        while line := self._line(response):
            if line.strip():
                yield json.loads(line)

    def _line(self, response: HTTPResponse) -> bytes:
        """The next line; nothing at the end, also if the connection ends in the middle of one."""
        with _as_unreachable():
            line = response.readline(LINE_BYTES_MAX)
        return line if line.endswith(b"\n") or len(line) == LINE_BYTES_MAX else b""

    def _send(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> HTTPResponse:
        if content is not None:
            headers["Content-Type"] = "application/json"
        with _as_unreachable():
            self._connection.request(method, self._prefix + path, content, headers)
            response = self._connection.getresponse()
        if response.status >= 400:
            raise Refused(_reason(response))
        return response


def run(act: Callable[[HttpClient, argparse.Namespace], int | None], options: argparse.Namespace) -> int:
    """Run a verb with a client of `options.http`; its exit code, or 1 after one sentence about what failed."""
    try:
        client = HttpClient(options.http)
        try:
            code = act(client, options)
            sys.stdout.flush()
        finally:
            client.close()
    except Unreachable as error:
        print(f"kwire: no answer from {options.http}: {error}; is the server running?", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output is gone; nothing may be left that Python would try to print at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ValueError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    return code or 0


@contextmanager
def _as_unreachable() -> Iterator[None]:
    try:
        yield
    except HTTPException as error:
        raise Unreachable(f"no HTTP answer: {error!r}") from error
    except OSError as error:
        raise Unreachable(str(error)) from error


def _reason(response: HTTPResponse) -> str:
    try:
        error = json.loads(response.read(ANSWER_BYTES_MAX))["error"]
        return f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status} {response.reason}"
