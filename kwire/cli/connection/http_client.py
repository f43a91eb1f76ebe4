"""An HTTP client for JSON and for streams of lines, and a function that declares verbs with this client."""

import argparse
import base64
import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from kwire.cli.connection.errors import LoginRefused, RefusedOverHttp, Unreachable
from kwire.cli.connection.options import add_http_options, http_client_of
from kwire.cli.connection.settings import HOW_TO_LOG_IN, HttpSettings
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.server_addresses import nothing_listens

ANSWER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024
OPTION = "--http"


class HttpClient:
    """An HTTP client with one connection, for one request at a time."""

    def __init__(self, settings: HttpSettings) -> None:
        """Raises UsageError if the URL is not valid."""
        url, login = settings.url, settings.login
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            raise UsageError(f"{OPTION} takes http://HOST:PORT or https://HOST:PORT, not {url!r}") from None
        if not is_valid or parts.username is not None:
            # The URL is not shown if it has a password.
            shown = repr(url) if parts.username is None else "a URL with a user: use --user"
            raise UsageError(f"{OPTION} takes http://HOST:PORT or https://HOST:PORT, not {shown}")
        self._url = url
        self._prefix = parts.path.rstrip("/")
        self._headers: dict[str, str] = {}
        self._user = login.user if login is not None else None
        if login is not None:
            pair = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
            if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
                print(f"kwire: the password is sent to {parts.hostname} without encryption: use https", file=sys.stderr)
        self._timeouts = settings.timeouts
        self._connection = _connection(parts, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the response. Raises Refused, LoginRefused or Unreachable."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = self._send(method, path, content, {"Accept": "application/json"})
        with self._as_unreachable():
            answer = response.read(ANSWER_BYTES_MAX)
            try:
                return json.loads(answer)
            except (ValueError, RecursionError):
                raise HTTPException(f"the answer to {method} {path} is not JSON") from None

    def fetch(self, path: str) -> bytes:
        """Send a GET and return the undecoded body of the response. Raises Refused, LoginRefused or Unreachable."""
        response = self._send("GET", path, None, {"Accept": "application/json"})
        with self._as_unreachable():
            answer = response.read(ANSWER_BYTES_MAX + 1)
            if len(answer) > ANSWER_BYTES_MAX:
                raise HTTPException(f"the answer to GET {path} is too long")
            return answer

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Send a GET, and yield the JSON object of each line of the response as it arrives."""
        response = self._send("GET", path, None, {"Accept": "application/x-ndjson"})
        while line := self._line(response):
            if line.strip():
                with self._as_unreachable():
                    message = _json_object(line)
                yield message

    def _line(self, response: HTTPResponse) -> bytes:
        """Return the next line. Return b"" at the end of the stream, also if the connection ended within a line."""
        with self._as_unreachable():
            line = response.readline(LINE_BYTES_MAX + 1)
            if len(line) > LINE_BYTES_MAX:
                raise HTTPException("a line is too long")
        return line if line.endswith(b"\n") else b""

    def _send(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> HTTPResponse:
        if content is not None:
            headers["Content-Type"] = "application/json"
        with self._as_unreachable():
            self._connect()
            self._connection.request(method, self._prefix + path, content, headers | self._headers)
            response = self._connection.getresponse()
        if response.status >= 400:
            reason, code = _reason(response)
            if response.status != HTTPStatus.UNAUTHORIZED:
                raise RefusedOverHttp(reason, code)
            if self._user is None:
                raise LoginRefused(f"{reason}; {HOW_TO_LOG_IN}")
            raise LoginRefused(f"{self._url} refused the login of user {self._user}: {reason}")
        return response

    def _connect(self) -> None:
        """Connect within a short time. Answers may take longer."""
        if self._connection.sock is None:
            self._connection.timeout = self._timeouts.connect_seconds
            self._connection.connect()
        connected: socket.socket = self._connection.sock
        connected.settimeout(self._timeouts.request_seconds)

    @contextmanager
    def _as_unreachable(self) -> Iterator[None]:
        try:
            yield
        except ConnectionRefusedError as error:
            raise Unreachable(nothing_listens(self._url, OPTION)) from error
        except BrokenPipeError as error:
            # The runner would understand it as the end of the reader of stdout.
            raise Unreachable(f"no answer from {self._url}: it closed the connection") from error
        except (HTTPException, OSError) as error:
            raise Unreachable(f"no answer from {self._url}: {self._reason(error)}") from error

    def _reason(self, error: HTTPException | OSError) -> str:
        # Imported here, because it takes longer than most commands run.
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}; name its CA with --cacert"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed: {error.reason or error}; check that the server expects https on this port"
        if isinstance(error, TimeoutError):
            is_connected = self._connection.sock is not None
            timeout = self._timeouts.request_seconds if is_connected else self._timeouts.connect_seconds
            return f"nothing came within {timeout:g} s; check the address, or name another server with {OPTION}"
        if isinstance(error, socket.gaierror):
            return f"the host is not known: {error.strerror or error}; check the address"
        if isinstance(error, ConnectionResetError):
            return "it closed the connection; check the port, and whether it expects https"
        if isinstance(error, OSError):
            return error.strerror or str(error)
        return "it does not answer as an HTTP server of kwire does; check the port"


def add_http_verb(
    verbs: Any,
    name: str,
    purpose: str,
    act: Callable[[HttpClient, argparse.Namespace], int | None],
    *,
    has_output: bool = True,
) -> CommandParser:
    """Declare a verb that calls `act` with an HTTP client and the options."""

    def run(options: argparse.Namespace) -> int | None:
        with closing(http_client_of(options)) as client:
            return act(client, options)

    parser = add_verb(verbs, name, purpose, run)
    add_http_options(parser)
    if has_output:
        add_output(parser)
    return parser


def _connection(parts: SplitResult, settings: HttpSettings) -> HTTPConnection:
    host, timeout = parts.hostname or "", settings.timeouts.connect_seconds
    if parts.scheme == "http":
        return HTTPConnection(host, parts.port or 80, timeout=timeout)
    context = settings.tls
    if context is None:
        import ssl

        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    return HTTPSConnection(host, parts.port or 443, timeout=timeout, context=context)


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise HTTPException("a line is not a JSON object")
    return value


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(response: HTTPResponse) -> tuple[str, str | None]:
    """Return the message and the code of a refusal. The code is None if the answer is not one of kwire."""
    try:
        error = json.loads(response.read(ANSWER_BYTES_MAX))["error"]
        return f"{error['message']} ({error['code']})", str(error["code"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status} {response.reason}", None
