"""Quotas of HTTP requests. The quotas of a user apply to its requests over HTTP, too.

A Kafka client that exceeds its quota has to wait. An HTTP client is refused instead: 429 with Retry-After. Every answer
to a client with a quota has the header fields of draft-ietf-httpapi-ratelimit-headers-10. Streams are not refused while
they are open: they wait (`server/http/stream_connections`).
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from aiohttp import web

from kwire.access.quotas.client_quota import Allowance, ClientQuota, Exceeded
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.quotas import Quotas
from kwire.errors import ErrorCode
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import RequestAccess, access_of

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refuse = Callable[[Exceeded], Refusal]

RETRY_AFTER = "Retry-After"


class _Unit(NamedTuple):
    """The unit of a quota: in the message of a refusal, and in the header field RateLimit-Policy."""

    text: str
    header: str


_UNITS = {
    QuotaKind.PRODUCE: _Unit("bytes per second", "content-bytes"),
    QuotaKind.CONSUME: _Unit("bytes per second", "content-bytes"),
    QuotaKind.REQUEST: _Unit("percent of the time of one core", "milliseconds"),
    QuotaKind.MUTATION: _Unit("partitions per second", "partitions"),
}


class QuotaExceeded(Refusal):
    """The client has exceeded a quota of its user."""

    status = 429
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED.name


def quota_refusal(exceeded: Exceeded) -> Refusal:
    """Return the refusal of all routes that do not declare another one."""
    refusal = QuotaExceeded(
        f"the quota {exceeded.kind} of {exceeded.limit:g} {_UNITS[exceeded.kind].text} is exceeded; "
        f"try again in {exceeded.retry_after_s} s",
        quota=exceeded.kind.value,
        limit=exceeded.limit,
        retry_after_ms=exceeded.retry_after_ms,
    )
    refusal.headers = {RETRY_AFTER: str(exceeded.retry_after_s)}
    return refusal


def with_quotas(handle: Handle, kinds: Sequence[QuotaKind], quotas: Quotas, refuse: Refuse = quota_refusal) -> Handle:
    """Return a handler that refuses the requests of clients above one of these quotas, and charges the others.

    A request that publishes is charged with the bytes of its body, one that reads with those of its answer, and each
    with the time of handling it. Handlers that create or delete partitions charge these with `charge_partitions`.
    `refuse` turns a refusal into the error that the route answers.
    """

    async def handle_with_quotas(request: web.Request) -> web.StreamResponse:
        if not quotas.is_any_client:
            return await handle(request)
        client = quotas.client(access_of(request).principal.name, None)
        if client is None:
            return await handle(request)
        for kind in kinds:
            exceeded = client.exceeded(kind)
            if exceeded is not None:
                raise _refusal(client, kinds, refuse(exceeded))
        answer: web.StreamResponse | None = None
        handling = _Timed(handle(request))
        try:
            answer = await handling
        finally:
            client.add(QuotaKind.REQUEST, handling.seconds)
            if QuotaKind.PRODUCE in kinds:
                client.add(QuotaKind.PRODUCE, request.content.total_bytes)
            if QuotaKind.CONSUME in kinds:
                client.add(QuotaKind.CONSUME, _read_bytes(answer))
        if not answer.prepared:
            answer.headers.update(_rate_limit(client, kinds))
        return answer

    return handle_with_quotas


def charge_partitions(quotas: Quotas, access: RequestAccess, count: int) -> None:
    """Charge partitions that are about to be created or deleted. Raises QuotaExceeded, and charges nothing then."""
    client = quotas.client(access.principal.name, None)
    if client is None:
        return
    exceeded = client.exceeded(QuotaKind.MUTATION)
    if exceeded is not None:
        raise _refusal(client, (QuotaKind.MUTATION,), quota_refusal(exceeded))
    client.mutations(is_strict=False).take(count)


class _Timed:
    """Awaits a handler, and measures the time in which it runs. The time in which it waits does not count."""

    __slots__ = ("_handling", "seconds")

    def __init__(self, handling: Awaitable[web.StreamResponse]) -> None:
        self._handling = handling
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, web.StreamResponse]:
        steps = self._handling.__await__()
        result: Any = None
        error: BaseException | None = None
        while True:
            began = perf_counter()
            try:
                waited_for = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                answer: web.StreamResponse = end.value
                return answer
            finally:
                self.seconds += perf_counter() - began
            result = error = None
            try:
                result = yield waited_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as raised:
                error = raised


def _refusal(client: ClientQuota, kinds: Sequence[QuotaKind], refusal: Refusal) -> Refusal:
    refusal.headers = {**refusal.headers, **_rate_limit(client, kinds)}
    return refusal


def _read_bytes(answer: web.StreamResponse | None) -> int:
    body = answer.body if isinstance(answer, web.Response) else None
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else 0


def _rate_limit(client: ClientQuota, kinds: Sequence[QuotaKind]) -> dict[str, str]:
    return rate_limit_headers([found for kind in kinds if (found := client.allowance(kind)) is not None])


def rate_limit_headers(allowances: Sequence[Allowance]) -> dict[str, str]:
    """Return the policies (quota, window, unit) and what is left of them (remaining units, seconds until a reset)."""
    if not allowances:
        return {}
    return {
        "RateLimit-Policy": ", ".join(
            f'"{one.kind.value}";q={one.quota};w={one.window_s};qu="{_UNITS[one.kind].header}"' for one in allowances
        ),
        "RateLimit": ", ".join(f'"{one.kind.value}";r={one.remaining};t={one.reset_s}' for one in allowances),
    }
