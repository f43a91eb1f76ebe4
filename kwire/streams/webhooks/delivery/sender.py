"""The interface between delivery and the HTTP client: a request and its response.

A `Send` function does not raise an exception if the receiver or the network fails. It returns a `Response`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

TIMEOUT_MS_DEFAULT = 15_000
# Replaces secrets in texts that are recorded.
HIDDEN = "…"


class Request(NamedTuple):
    """A POST request. The HTTP client sends further headers in addition to `headers`.

    `secret_texts` are parts of the request that must not be in a `Response`. The longest comes first.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    secret_texts: tuple[str, ...] = ()

    def without_secrets(self, text: str) -> str:
        """Return a text of the receiver, or about it, without the secrets of this request."""
        for secret in self.secret_texts:
            text = text.replace(secret, HIDDEN)
        return text


class Response(NamedTuple):
    """The result of a request. If there was no HTTP response, `status` is None and `problem` is the reason as text."""

    status: int | None
    problem: str | None = None
    # The beginning of the response body, for the delivery log.
    excerpt: str = ""
    # The pause requested with Retry-After.
    retry_after_ms: int | None = None
    duration_ms: int = 0
    # Whether the request was not sent, because the address is not allowed.
    is_forbidden: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx. Redirects are not followed, so a redirect is a failure."""
        return self.status is not None and 200 <= self.status < 300


Send = Callable[[Request], Awaitable[Response]]
