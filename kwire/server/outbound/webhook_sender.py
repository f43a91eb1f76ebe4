"""Webhooks on their way: one POST to where it may go, and what came of it.

The guard is in three places. `address_rules` reads the URL. A name is then looked up once, all addresses it stands for
are checked, and the connection goes to one of these, so a name that changes between check and connection changes
nothing; TLS still asks for a certificate of the name. And every socket is made by `_socket_for`, which checks the
address it is for: whatever way led there, none is opened to a forbidden address. Redirects are answers, not ways to
go; proxies and credentials of the environment are not used, and there are no cookies.

Everything is bounded: time for the whole attempt, connections in all and to one host, bytes of the answer, names
looked up at the same time. Who calls sees to it that no more are sent at a time than there may be connections: one more
would wait for a connection within its time.
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
from kwire.broker.webhooks.sending import Request, Response
from kwire.clock import Clock
from kwire.errors import InvalidWebhook
from kwire.server.address_rules import AddressRules, ForbiddenTarget, Target

USER_AGENT = f"kwire-webhooks/{__version__}"
CONNECTIONS_MAX = 256
CONNECTIONS_PER_HOST_MAX = 64
KEPT_ALIVE_SECONDS = 30.0
LOOKUP_THREADS = 8
# Lookups that wait for a thread; one more is a failed attempt, which is tried again later.
LOOKUPS_WAITING_MAX = 1000
CONNECT_SECONDS = 5.0
# The status is the answer; what else it says is waited for so long.
EXCERPT_SECONDS = 0.9
# What is read of an answer, and what of it is kept for the delivery log.
ANSWER_BYTES_MAX = 64 * 1024
EXCERPT_BYTES = 1024
PROBLEM_LENGTH_MAX = 300
RETRY_AFTER_MS_MAX = 24 * 3_600_000
# Ours to say: a webhook's own headers cannot change them.
OWN_HEADERS = {"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": "identity"}
LINE_BYTES_MAX = 8190
TARGETS_KEPT = 2000

# All addresses of a name, as text. Raises OSError.
LookUp = Callable[[str, int], Awaitable[list[str]]]


class WebhookSender:
    """Called from the event loop; `send` is what the delivery machine is given. `close` ends it."""

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
        # Webhooks send to few URLs, and to each many times.
        self._target: Callable[[str], Target] = lru_cache(TARGETS_KEPT)(rules.check_url)
        self._connections_max = connections_max
        self._connections_per_host_max = connections_per_host_max
        self._made_session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._made_session is not None:
            await self._made_session.close()
        # A lookup that hangs ends by itself; nobody waits for it.
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def check_url(self, url: str) -> None:
        """For the doors, before a webhook is taken; raises InvalidWebhook. What a name stands for is looked at when
        something is sent, each time anew."""
        try:
            self.rules.check_url(url)
        except ForbiddenTarget as error:
            raise InvalidWebhook(f"webhooks may not go there: {error}") from None

    async def send(self, request: Request) -> Response:
        """One attempt; it does not raise. Its time begins now."""
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
        return response._replace(duration_ms=round((time.monotonic() - begun) * 1000))

    async def _attempt(self, target: Target, request: Request) -> Response:
        """What the receiver says in time. Its status counts, whatever becomes of the rest."""
        async with asyncio.timeout(request.timeout_ms / 1000):
            answer = await self._answer(target, request)
        try:
            excerpt = await _beginning(answer)
        finally:
            answer.release()
        return Response(
            answer.status,
            None if 200 <= answer.status < 300 else _refused(answer),
            excerpt=excerpt,
            retry_after_ms=self._retry_after_ms(answer.headers.get("Retry-After")),
        )

    async def _answer(self, target: Target, request: Request) -> aiohttp.ClientResponse:
        """A kept connection may have been ended by the receiver just before it is used, all of them by a restart: that
        says nothing about the receiver, so the next one is tried. What was taken twice has the same id."""
        for _ in range(self._connections_per_host_max):
            trip = _Trip()
            try:
                return await self._post(target, request, trip)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not trip.is_reused or isinstance(error, aiohttp.ClientConnectorError):
                    raise
        return await self._post(target, request, _Trip())

    async def _post(self, target: Target, request: Request, trip: "_Trip") -> aiohttp.ClientResponse:
        headers = {name.lower(): value for name, value in request.headers.items()} | OWN_HEADERS
        return await self._session.post(
            _url_of(target),
            data=request.body,
            headers=headers,
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            proxy=None,
            trace_request_ctx=trip,
        )

    @property
    def _session(self) -> aiohttp.ClientSession:
        """Made when the first webhook is sent: most servers send none."""
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
                # The whole attempt has its own limit.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                max_line_size=LINE_BYTES_MAX,
                max_field_size=LINE_BYTES_MAX,
                read_bufsize=ANSWER_BYTES_MAX,
                trace_configs=[_trips()],
            )
        return self._made_session

    def _socket_for(self, info: Any) -> socket.socket:
        """The last look, at the very address that is connected to."""
        family, kind, protocol, _, address = info
        try:
            self.rules.check_address(ip_address(address[0]))
        except ForbiddenTarget as error:
            raise _ForbiddenSocket(str(error)) from None
        made = socket.socket(family, kind, protocol)
        if not self._may_keep(made.fileno()):
            made.close()
            raise OSError(errno.EMFILE, "the descriptors that are left are kept for the log")
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
        """In threads of its own: a slow name server must not hold up anything else of the process."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._lookups, ask)
        return [str(address[0]) for _, _, _, _, address in found]

    def _retry_after_ms(self, text: str | None) -> int | None:
        """Seconds, or a date."""
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
    """As an error that those who connect know: they try the next address, and tell the last one's problem."""


class _Trip:
    """What is known of the connection that a request goes over."""

    __slots__ = ("is_reused",)

    def __init__(self) -> None:
        self.is_reused = False


def _trips() -> aiohttp.TraceConfig:
    async def reused(session: object, context: Any, params: object) -> None:
        context.trace_request_ctx.is_reused = True

    traces = aiohttp.TraceConfig()
    traces.on_connection_reuseconn.append(reused)
    return traces


class _CheckedResolver(AbstractResolver):
    """What aiohttp asks for the addresses of a name: it gets those that may be connected to."""

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
    """The URL put together again from its checked parts, so that what is connected to is what was checked."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}{target.path}"


async def _beginning(answer: aiohttp.ClientResponse) -> str:
    """The beginning of the body. A short one is read to its end, which keeps the connection; a long one costs it."""
    if answer.content.is_eof():
        # It has come together with the status, as short ones do.
        return answer.content.read_nowait(EXCERPT_BYTES).decode(errors="replace")
    found = bytearray()
    try:
        async with asyncio.timeout(EXCERPT_SECONDS):
            async for piece in answer.content.iter_any():
                found += piece
                if len(found) > ANSWER_BYTES_MAX:
                    answer.close()
                    break
    except (TimeoutError, aiohttp.ClientError, OSError):
        # The status has come, and that is what counts.
        answer.close()
    return found[:EXCERPT_BYTES].decode(errors="replace")


def _refused(answer: aiohttp.ClientResponse) -> str:
    if 300 <= answer.status < 400:
        return f"answered {answer.status}: redirects are not followed"
    return f"answered {answer.status} {answer.reason or ''}"[:PROBLEM_LENGTH_MAX].rstrip()


def _failure(error: Exception) -> Response:
    """An attempt without an answer, in words."""
    match error:
        case aiohttp.ClientConnectorError(os_error=_ForbiddenSocket() as refused):
            return Response(None, f"not sent: {refused}", is_forbidden=True)
        case aiohttp.ClientConnectorCertificateError():
            words = f"the certificate is not good: {error.certificate_error}"
        case aiohttp.ClientConnectorDNSError():
            words = f"the name cannot be looked up: {error.strerror or error.os_error}"
        case aiohttp.ClientConnectorError():
            words = f"no connection: {error.strerror or error.os_error}"
        case aiohttp.ServerDisconnectedError():
            words = "the connection ended without an answer"
        case _:
            words = f"no answer: {error or type(error).__name__}"
    return Response(None, words[:PROBLEM_LENGTH_MAX])
