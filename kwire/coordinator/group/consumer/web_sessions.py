"""How long the session of a member that speaks HTTP is: its client id says it.

A Kafka client may call itself what it likes, so its client id alone means nothing. The host is the server's own word:
that of a Kafka client begins with a slash, as in Kafka.
"""

from kwire.coordinator.group.consumer.members import Subscription

_PREFIX = "kwire-http;session.timeout.ms="
_DOOR = "http:/"
# No more than a number of milliseconds in 32 bits has.
_DIGITS_MAX = 10


def web_client_id(session_timeout_ms: int) -> str:
    return f"{_PREFIX}{session_timeout_ms}"


def web_client_host(address: str) -> str:
    return f"{_DOOR}{address}"


def web_session_ms(said: Subscription) -> int | None:
    """None if this member did not come by HTTP."""
    if not said.client_host.startswith(_DOOR) or not said.client_id.startswith(_PREFIX):
        return None
    digits = said.client_id[len(_PREFIX) :]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return int(digits) if is_number else None
