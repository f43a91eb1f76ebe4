"""The errors of a client of a cluster, and which errors of a server pass when the request is repeated."""

from typing import Final

from kwire.errors import ErrorCode, KafkaError

# The request was not carried out. It may succeed later or at another broker.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
# The request may have been carried out. Only a request that may be carried out twice can be repeated.
UNCERTAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# The client's idea of the leader, or of the topic, is out of date.
STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class Unreachable(KafkaError):
    """A broker cannot be reached, or its connection was lost. Unanswered requests may have been carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class NotSent(Unreachable):
    """A request that was not sent, because there is no connection to the broker."""


class LoginRefused(KafkaError):
    """The broker does not accept the user, the password or the mechanism."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class NotSupported(KafkaError):
    """The broker does not have an API, or none of the versions that this client needs."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


def error_code(code: int) -> ErrorCode:
    """Return a member of ErrorCode for a code in a response. Codes of later versions of Kafka are not known."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(subject: str, code: int, message: str | None = None) -> KafkaError:
    """Return the error of a subject, such as `topic 'orders'`, that a response refuses with a code."""
    known = error_code(code)
    if message is not None and message.lower().startswith(f"{subject.lower()} "):
        # Some messages name the subject: "Topic 'orders' already exists."
        return KafkaError(known, message)
    text = message or (known.name if known == code else f"error {code}")
    return KafkaError(known, f"{subject}: {text}")
