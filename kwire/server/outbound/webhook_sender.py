"""The webhook sender sends POST requests to allowed targets.

The target is checked three times. First, `address_rules` checks the URL. Second, the name in the URL is looked up once,
and all its addresses are checked. The connection is made to one of these addresses, so a change of DNS after the check
has no effect. TLS still verifies the certificate for the name. Third, `_socket_for` checks the address of every socket
that it creates. Redirects are not followed. Proxies and credentials of the environment are not used, and cookies are
not stored.

These are limited: the duration of an attempt, the number of connections in total and per host, the size of the response
and the number of concurrent name lookups. The caller limits the number of concurrent requests to the number of
connections, because the timeout of a request includes the time in which it waits for a connection.
"""

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from ipaddress import ip_address
from ssl import SSLContext
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from kwire import __version__
from kwire.clock import Clock
from kwire.errors import InvalidWebhook
from kwire.server.outbound.address_rules import AddressRules, ForbiddenTarget, Target
from kwire.streams.webhooks.definition import HEADER_BYTES_MAX
from kwire.streams.webhooks.delivery.sender import Request, Response

USER_AGENT = f"kwire-webhooks/{__version__}"
CONNECTIONS_MAX = 256
CONNECTIONS_PER_HOST_MAX = 64
KEPT_ALIVE_SECONDS = 30.0
LOOKUP_THREADS = 8
# The maximum number of lookups that run or wait for a thread. A further lookup fails, and its delivery is retried
# later.
LOOKUPS_WAITING_MAX = 1000
CONNECT_SECONDS = 5.0
# The time to wait for the body of a response after its status was received.
EXCERPT_SECONDS = 0.9
# The maximum number of bytes of a response that are read, and the number of bytes that are stored in the delivery log.
ANSWER_BYTES_MAX = 64 * 1024
EXCERPT_BYTES = 1024
PROBLEM_LENGTH_MAX = 300
# The size of the longest secret of a request: a header value.
SECRET_BYTES_MAX = HEADER_BYTES_MAX
RETRY_AFTER_MS_MAX = 24 * 3_600_000
# Headers that the configured headers of a webhook cannot override.
OWN_HEADERS = {"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": "identity"}
LINE_BYTES_MAX = 8190
TARGETS_KEPT = 2000

# A function that returns all addresses of a host name and port, as text. Raises OSError.
LookUp = Callable[[str, int], Awaitable[list[str]]]


class WebhookSender:
    """Sends webhook requests until `close` is called. Use it only in the event loop's thread."""

    def __init__(
        self,
        rules: AddressRules,
        clock: Clock,
        *,
        look_up: LookUp | None = None,
        tls: SSLContext | None = None,
        may_keep: Callable[[int], bool] = lambda fd: True,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_host_max: int = CONNECTIONS_PER_HOST_MAX,
    ) -> None:
        self.rules = rules
        self._clock = clock
        self._lookups = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="webhook-names")
        self._lookup_count = 0
        self._look_up = look_up or self._ask_resolver
        self._tls = tls
        self._may_keep = may_keep
        # The cache saves time, because many requests are sent to few URLs.
        self._target: Callable[[str], Target] = lru_cache(TARGETS_KEPT)(rules.check_url)
        self._connections_max = connections_max
        self._connections_per_host_max = connections_per_host_max
        self._made_session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._made_session is not None:
            await self._made_session.close()
        # Running lookups are not awaited, because a lookup can take long.
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def check_url(self, url: str) -> None:
        """Check the URL of a new webhook. Raises InvalidWebhook.

        The addresses of the name in the URL are not checked here, but whenever a connection is made.
        """
        try:
            self.rules.check_url(url)
        except ForbiddenTarget as error:
            raise InvalidWebhook(f"the URL is not allowed: {error}") from None

    async def send(self, request: Request) -> Response:
        """Make one delivery attempt. If it fails, the returned response describes the failure."""
        try:
            target = self._target(request.url)
        except ForbiddenTarget as error:
            return Response(None, f"not sent: {error}", is_forbidden=True)
        if self._is_closed:
            return Response(None, "the server is stopping")
        begun = time.monotonic()
        try:
            response = await self._attempt(target, request)
        except ForbiddenTarget as error:
            response = Response(None, f"not sent: {error}", is_forbidden=True)
        except aiohttp.ConnectionTimeoutError:
            response = Response(None, f"no connection within {CONNECT_SECONDS:g} s")
        except TimeoutError:
            response = Response(None, f"no answer within {request.timeout_ms} ms")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            response = _failure(error)
        return response._replace(
            # A receiver may repeat parts of the request.
            problem=response.problem and request.without_secrets(response.problem)[:PROBLEM_LENGTH_MAX],
            excerpt=request.without_secrets(response.excerpt)[:EXCERPT_BYTES],
            duration_ms=round((time.monotonic() - begun) * 1000),
        )

    async def _attempt(self, target: Target, request: Request) -> Response:
        """Send the request and return the response.

        The status must arrive within the timeout of the request. The body may be incomplete.
        """
        async with asyncio.timeout(request.timeout_ms / 1000):
            answer = await self._answer(target, request)
        try:
            excerpt = await _read_excerpt(answer)
        finally:
            answer.release()
        return Response(
            answer.status,
            None if 200 <= answer.status < 300 else _refusal_text(answer),
            excerpt=excerpt,
            retry_after_ms=self._retry_after_ms(answer.headers.get("Retry-After")),
        )

    async def _answer(self, target: Target, request: Request) -> aiohttp.ClientResponse:
        """Send the request. If it fails on a kept-alive connection that was closed, send it on another connection.

        A receiver may close a connection shortly before it is used. If the receiver restarts, it closes all of its
        connections. That is not a failed delivery. If the receiver gets an event twice, both copies have the same id.
        """
        for _ in range(self._connections_per_host_max):
            connection_use = _ConnectionUse()
            try:
                return await self._post(target, request, connection_use)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not connection_use.is_reused or isinstance(error, aiohttp.ClientConnectorError):
                    raise
        return await self._post(target, request, _ConnectionUse())

    async def _post(self, target: Target, request: Request, connection_use: "_ConnectionUse") -> aiohttp.ClientResponse:
        headers = {name.lower(): value for name, value in request.headers.items()} | OWN_HEADERS
        return await self._session.post(
            _url_of(target),
            data=request.body,
            headers=headers,
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            proxy=None,
            trace_request_ctx=connection_use,
        )

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The HTTP session. It is created for the first webhook request, because most servers send none."""
        if self._made_session is None:
            connector = aiohttp.TCPConnector(
                resolver=_CheckedResolver(self.rules, self._addresses),
                use_dns_cache=False,
                limit=self._connections_max,
                limit_per_host=self._connections_per_host_max,
                keepalive_timeout=KEPT_ALIVE_SECONDS,
                socket_factory=self._socket_for,
                ssl=True if self._tls is None else self._tls,
            )
            self._made_session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                # `_attempt` limits the total time.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                max_line_size=LINE_BYTES_MAX,
                max_field_size=LINE_BYTES_MAX,
                read_bufsize=ANSWER_BYTES_MAX,
                trace_configs=[_trace_config()],
            )
        return self._made_session

    def _socket_for(self, info: Any) -> socket.socket:
        """Check the address of a connection for the last time, and create its socket."""
        family, kind, protocol, _, address = info
        try:
            self.rules.check_address(ip_address(address[0]))
        except ForbiddenTarget as error:
            raise _ForbiddenSocket(str(error)) from None
        made = socket.socket(family, kind, protocol)
        if not self._may_keep(made.fileno()):
            made.close()
            raise OSError(errno.EMFILE, "the remaining file descriptors are reserved for the log")
        return made

    async def _addresses(self, host: str, port: int) -> list[str]:
        if self._lookup_count >= LOOKUPS_WAITING_MAX:
            raise OSError("too many names are being looked up")
        self._lookup_count += 1
        try:
            return await self._look_up(host, port)
        finally:
            self._lookup_count -= 1

    async def _ask_resolver(self, host: str, port: int) -> list[str]:
        """Look up a name in a separate thread pool, so that a slow name server does not delay other work in threads."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._lookups, ask)
        return [str(address[0]) for _, _, _, _, address in found]

    def _retry_after_ms(self, text: str | None) -> int | None:
        """Parse a Retry-After header: a number of seconds, or a date. Returns None if there is no valid header."""
        if text is None:
            return None
        text = text.strip()
        if text.isascii() and text.isdigit():
            return min(int(text[:10]) * 1000, RETRY_AFTER_MS_MAX)
        try:
            moment_ms = int(parsedate_to_datetime(text).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
        return max(0, min(moment_ms - self._clock.now_ms(), RETRY_AFTER_MS_MAX))


class _ForbiddenSocket(OSError):
    """The address of a socket is forbidden. As this is an OSError, aiohttp tries the next address of the name."""


class _ConnectionUse:
    """Records whether a request used a kept-alive connection."""

    __slots__ = ("is_reused",)

    def __init__(self) -> None:
        self.is_reused = False


def _trace_config() -> aiohttp.TraceConfig:
    async def reused(session: object, context: Any, params: object) -> None:
        context.trace_request_ctx.is_reused = True

    traces = aiohttp.TraceConfig()
    traces.on_connection_reuseconn.append(reused)
    return traces


class _CheckedResolver(AbstractResolver):
    """The resolver for aiohttp. It checks the addresses of a name before it returns them."""

    def __init__(self, rules: AddressRules, look_up: LookUp) -> None:
        self._rules = rules
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = self._rules.check_addresses(await self._look_up(host, port))
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in found
        ]

    async def close(self) -> None:
        pass


def _url_of(target: Target) -> str:
    """Return the URL of a checked target. aiohttp gets this URL, so it connects to exactly the checked target."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}{target.path}"


async def _read_excerpt(answer: aiohttp.ClientResponse) -> str:
    """Return the beginning of the body: an excerpt, and enough bytes after it to recognise a secret at its end.

    A short body is read completely, so that the connection can be reused. If the body is too long or too slow, the
    connection is closed.
    """
    if answer.content.is_eof():
        # The body is short and has arrived together with the status.
        return answer.content.read_nowait(EXCERPT_BYTES + SECRET_BYTES_MAX).decode(errors="replace")
    found = bytearray()
    try:
        async with asyncio.timeout(EXCERPT_SECONDS):
            async for piece in answer.content.iter_any():
                found += piece
                if len(found) > ANSWER_BYTES_MAX:
                    answer.close()
                    break
    except (TimeoutError, aiohttp.ClientError, OSError):
        # The delivery does not fail, because the status has been received.
        answer.close()
    return found[: EXCERPT_BYTES + SECRET_BYTES_MAX].decode(errors="replace")


def _refusal_text(answer: aiohttp.ClientResponse) -> str:
    if 300 <= answer.status < 400:
        return f"answered {answer.status}: redirects are not followed"
    return f"answered {answer.status} {answer.reason or ''}".rstrip()


def _failure(error: Exception) -> Response:
    """Return the `Response` for an attempt that did not get an HTTP response."""
    match error:
        case aiohttp.ClientConnectorError(os_error=_ForbiddenSocket() as refused):
            return Response(None, f"not sent: {refused}", is_forbidden=True)
        case aiohttp.ClientConnectorCertificateError():
            words = f"the certificate is not valid: {error.certificate_error}"
        case aiohttp.ClientConnectorDNSError():
            words = f"the name cannot be looked up: {error.strerror or error.os_error}"
        case aiohttp.ClientConnectorError():
            words = f"no connection: {error.strerror or error.os_error}"
        case aiohttp.ServerDisconnectedError():
            words = "the connection ended without an answer"
        case aiohttp.ClientResponseError():
            # Its text has the URL with the query.
            words = f"the answer is not valid HTTP: {error.message}"
        case aiohttp.InvalidURL():
            words = "the URL is not valid"
        case _:
            words = f"no answer: {error or type(error).__name__}"
    return Response(None, words)
