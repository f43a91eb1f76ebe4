"""The kinds of quotas, under Kafka's names, and the check of their values."""

from collections.abc import Mapping
from enum import StrEnum

from kwire.errors import ErrorCode, KafkaError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
# Kafka's tolerance for a number of type double that must be whole.
FRACTION_MAX = 1e-6


class QuotaKind(StrEnum):
    """What a quota limits. The values are Kafka's names."""

    PRODUCE = "producer_byte_rate"
    CONSUME = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


# The largest value of each kind, and whether a value must be a whole number.
_CLIENT_KINDS: Mapping[str, tuple[float, bool]] = {
    QuotaKind.PRODUCE: (LONG_MAX, True),
    QuotaKind.CONSUME: (LONG_MAX, True),
    QuotaKind.REQUEST: (float("inf"), False),
    QuotaKind.MUTATION: (float("inf"), False),
}
_IP_KINDS: Mapping[str, tuple[float, bool]] = {QuotaKind.CONNECTION: (INT_MAX, True)}


def check_limit(kind: str, value: float, *, is_for_ip: bool) -> None:
    """Raise KafkaError, as Kafka does, if an entity cannot have this quota."""
    found = (_IP_KINDS if is_for_ip else _CLIENT_KINDS).get(kind)
    if found is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {kind[:200]}")
    largest, is_whole = found
    if not value > 0:  # also for NaN
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {kind} must be greater than 0")
    if value > largest or value == float("inf"):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {kind} is too large: {value:g}")
    if is_whole and value % 1 > FRACTION_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {kind} cannot be a fractional value")
