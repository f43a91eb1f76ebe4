"""Quotas of HTTP requests. The quotas of a user apply to what it publishes and reads over HTTP, too.

A Kafka client that exceeds its quota has to wait. An HTTP client is refused instead: 429 with Retry-After. Every answer
to a client with a quota has the header fields of draft-ietf-httpapi-ratelimit-headers-10. Streams are not refused while
they are open: they wait (`server/stream_connections`).
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from kwire.access.quotas.client_quota import Allowance, ClientQuota, Exceeded
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.quotas import Quotas
from kwire.errors import ErrorCode
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import access_of

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refuse = Callable[[Exceeded], Refusal]

RETRY_AFTER = "Retry-After"


class QuotaExceeded(Refusal):
    """The client has exceeded a quota of its user."""

    status = 429
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED.name


def quota_refusal(exceeded: Exceeded) -> Refusal:
    """Return the refusal of all routes that do not declare another one."""
    refusal = QuotaExceeded(
        f"the quota {exceeded.kind} of {exceeded.limit:g} bytes per second is exceeded; "
        f"try again in {exceeded.retry_after_s} s",
        quota=exceeded.kind.value,
        limit=exceeded.limit,
        retry_after_ms=exceeded.retry_after_ms,
    )
    refusal.headers = {RETRY_AFTER: str(exceeded.retry_after_s)}
    return refusal


def charged(handle: Handle, kind: QuotaKind, quotas: Quotas, refuse: Refuse = quota_refusal) -> Handle:
    """Return a handler that charges its requests: the body of a request that publishes, the answer of one that reads.

    `refuse` turns a refusal into the error that the route answers.
    """

    async def handle_charged(request: web.Request) -> web.StreamResponse:
        if not quotas.is_any_client:
            return await handle(request)
        client = quotas.client(access_of(request).principal.name, None)
        if client is None:
            return await handle(request)
        exceeded = client.exceeded(kind)
        if exceeded is not None:
            refusal = refuse(exceeded)
            refusal.headers = {**refusal.headers, **_rate_limit(client, kind)}
            raise refusal
        answer: web.StreamResponse | None = None
        try:
            answer = await handle(request)
        finally:
            client.add(kind, _published_bytes(request) if kind is QuotaKind.PRODUCE else _read_bytes(answer))
        if not answer.prepared:
            answer.headers.update(_rate_limit(client, kind))
        return answer

    return handle_charged


def _published_bytes(request: web.Request) -> int:
    return request.content.total_bytes


def _read_bytes(answer: web.StreamResponse | None) -> int:
    body = answer.body if isinstance(answer, web.Response) else None
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else 0


def _rate_limit(client: ClientQuota, kind: QuotaKind) -> dict[str, str]:
    allowance = client.allowance(kind)
    return {} if allowance is None else rate_limit_headers(allowance)


def rate_limit_headers(allowance: Allowance) -> dict[str, str]:
    """Return the policy (quota, window and unit) and what is left of it (remaining bytes, seconds until a reset)."""
    name = f'"{allowance.kind.value}"'
    return {
        "RateLimit-Policy": f'{name};q={allowance.quota};w={allowance.window_s};qu="content-bytes"',
        "RateLimit": f"{name};r={allowance.remaining};t={allowance.reset_s}",
    }
