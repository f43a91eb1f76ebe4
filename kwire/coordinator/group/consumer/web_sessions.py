"""The session timeout of an HTTP member. It is stored in the member's client id.

A Kafka client may use any client id, so the client host is checked too. The server sets the client host. The host of a
Kafka client begins with a slash, as in Kafka. The host of an HTTP member begins with `http:/`.
"""

from kwire.coordinator.group.consumer.members import Subscription

_PREFIX = "kwire-http;session.timeout.ms="
_HTTP_HOST_PREFIX = "http:/"
# The maximum number of digits of a 32-bit number.
_DIGITS_MAX = 10


def web_client_id(session_timeout_ms: int) -> str:
    return f"{_PREFIX}{session_timeout_ms}"


def web_client_host(address: str) -> str:
    return f"{_HTTP_HOST_PREFIX}{address}"


def web_session_ms(subscription: Subscription) -> int | None:
    """Return the session timeout of an HTTP member; None for other members."""
    if not subscription.client_host.startswith(_HTTP_HOST_PREFIX) or not subscription.client_id.startswith(_PREFIX):
        return None
    digits = subscription.client_id[len(_PREFIX) :]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return int(digits) if is_number else None
