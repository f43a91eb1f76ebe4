"""What is between the delivery machine and who has the sockets: one request, and what came of it.

A `Send` never raises for what a receiver does or does not do: that is a `Response` too.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

TIMEOUT_MS_DEFAULT = 15_000


class Request(NamedTuple):
    """One POST. `headers` are those of the message; who sends adds what HTTP needs."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_ms: int = TIMEOUT_MS_DEFAULT


class Response(NamedTuple):
    """What came of a request. Without an answer `status` is None and `problem` says why, in words for people."""

    status: int | None
    problem: str | None = None
    # The beginning of the answer's body, for the delivery log.
    excerpt: str = ""
    # What the receiver asked for with Retry-After.
    retry_after_ms: int | None = None
    duration_ms: int = 0
    # Nothing was sent: the address is one that webhooks may not go to.
    is_forbidden: bool = False

    @property
    def is_success(self) -> bool:
        """2xx alone: a redirect is a failure, for it is not followed."""
        return self.status is not None and 200 <= self.status < 300


Send = Callable[[Request], Awaitable[Response]]
