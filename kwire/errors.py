"""The errors that clients receive: Kafka's error codes, and errors of the HTTP API for rooms, events and webhooks."""

from enum import IntEnum
from typing import TypeVar

from kwire.enum_members import fast_members

E = TypeVar("E", bound=BaseException)


def as_value(error: E) -> E:
    """Remove the traceback of a caught error, so that it can be stored as a result. Returns the error.

    A traceback refers to stack frames, and a stack frame may refer to the object that stores the error. Only the
    garbage collector frees such a reference cycle, and collecting thousands of cycles stalls the event loop.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


@fast_members
class ErrorCode(IntEnum):
    """Kafka's error codes, with Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


# Messages quote the client's input. The input may be longer than the message field of a response allows.
MESSAGE_LENGTH_MAX = 1000


def shortened(message: str) -> str:
    """Return a message that quotes the client's input, without what is too long. KafkaError shortens its messages."""
    return message[:MESSAGE_LENGTH_MAX]


class KafkaError(Exception):
    """An error with a Kafka error code and a message. In the response it is the error of the whole request, or of one
    part, such as a topic or partition."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = shortened(message) or None


class StreamError(Exception):
    """An error of the HTTP API: a stable code, a message for people, and details for programs.

    The code is the name of the class. The HTTP layer chooses the HTTP status.
    """

    def __init__(self, message: str, details: dict[str, object]) -> None:
        super().__init__(message)
        self.code = type(self).__name__
        self.message = message[:MESSAGE_LENGTH_MAX]
        self.details = details


class RoomNotFound(StreamError):
    """The room does not exist, and this request does not create it."""

    def __init__(self, room: str) -> None:
        super().__init__(f"there is no room {room!r}", {"room": room[:MESSAGE_LENGTH_MAX]})


class EventNotFound(StreamError):
    """The offset is within the room's range, but there is no event at this offset. It may have been removed."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"there is no event at offset {offset}", {"offset": offset})
        self.offset = offset


class OffsetOutOfRange(StreamError):
    """The offset is before the room's oldest event or after its newest."""

    def __init__(self, requested: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"offset {requested} is out of range: the oldest is {oldest}, the newest {newest}",
            {"requested": requested, "oldest": oldest, "newest": newest},
        )
        self.requested = requested
        self.oldest = oldest
        self.newest = newest


class SubscriptionFailed(StreamError):
    """A subscription could not be created, or could not continue."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the subscription failed: {reason}", {"reason": reason[:MESSAGE_LENGTH_MAX]})


class BroadcastFailed(StreamError):
    """An event could not be delivered to a subscriber in time."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the broadcast failed: {reason}", {"reason": reason[:MESSAGE_LENGTH_MAX]})


class InvalidName(StreamError):
    """The name is not valid for a room or topic. `problem` is the reason."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"{name[: MESSAGE_LENGTH_MAX // 2]!r} is not a valid name: {problem}", {"name": name[:MESSAGE_LENGTH_MAX]}
        )


class TopicHasPartitions(StreamError):
    """The topic has several partitions, but a room has exactly one."""

    def __init__(self, topic: str, count: int) -> None:
        super().__init__(
            f"the topic {topic!r} has {count} partitions, so it cannot be used as a room",
            {"topic": topic, "count": count},
        )


class TooManyRooms(StreamError):
    """The room does not exist and cannot be created, because the limit on rooms is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"there are {limit} rooms already, and no more are allowed", {"limit": limit})


class TooManySubscribers(StreamError):
    """The limit on subscribers of the room is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the room has {limit} subscribers already, and no more are allowed", {"limit": limit})


class InvalidEvent(StreamError):
    """The published data is not a valid event. `problem` is the reason."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, {})


class EventTooLarge(StreamError):
    """An event, or the events that are to be stored together, have more bytes than the topic allows."""

    def __init__(self, size_bytes: int, limit: int) -> None:
        super().__init__(
            f"the events have at least {size_bytes} bytes together, at most {limit} are allowed",
            {"size_bytes": size_bytes, "limit": limit},
        )


class NotARoom(StreamError):
    """The topic was not created as a room. The room API can read and write it, but not change or delete it."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the topic {topic!r} was not created as a room, so it can only be changed or deleted as a topic",
            {"topic": topic},
        )


class TopicNotFound(StreamError):
    """The topic does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic[: MESSAGE_LENGTH_MAX // 2]!r}", {"topic": topic[:MESSAGE_LENGTH_MAX]}
        )


class NotAnEventTopic(StreamError):
    """The topic was not created with schemas, so it is not a topic of the event store."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the topic {topic!r} is not a topic of the event store: it has no schemas", {"topic": topic})


class WrongExpectedVersion(StreamError):
    """The last event of the topic does not have the expected version. Another client may have appended an event."""

    def __init__(self, topic: str, expected: int, actual: int) -> None:
        super().__init__(
            f"the last event of {topic!r} has version {actual}, {expected} was expected (-1 means no event)",
            {"topic": topic, "expected": expected, "actual": actual},
        )


class IdempotencyConflict(StreamError):
    """The idempotency key was used before, with other events."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency key {key!r} was used before, with other events", {"key": key})


class InvalidWebhook(StreamError):
    """The definition of a webhook is not valid. `problem` is the reason."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, {})


class WebhookNotFound(StreamError):
    """The webhook does not exist, or was deleted."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(
            f"there is no webhook {webhook_id[: MESSAGE_LENGTH_MAX // 2]!r}",
            {"webhook": webhook_id[:MESSAGE_LENGTH_MAX]},
        )


class WebhookConflict(StreamError):
    """The operation is not possible in the webhook's current state."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, {})


class TooManyWebhooks(StreamError):
    """The limit on webhooks is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"there are {limit} webhooks already, and no more are allowed", {"limit": limit})


class WebhooksUnavailable(StreamError):
    """This process does not deliver webhooks now, and does not know their state."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"webhooks are not available here: {problem}", {})


class EventStoreUnavailable(StreamError):
    """This process does not serve the event store now, and does not know its newest events."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the event store is not available here: {problem}", {})
        self.problem = problem


class InvalidSchema(StreamError):
    """The schemas of a topic are not valid. `path` is the JSON path of the problem. It begins with `$`."""

    def __init__(self, problem: str, path: str) -> None:
        super().__init__(f"{path[: MESSAGE_LENGTH_MAX // 2]}: {problem}", {"path": path[:MESSAGE_LENGTH_MAX]})
        self.problem = problem
        self.path = path


class IncompatibleSchema(StreamError):
    """The change of a schema is not backward compatible. `path` is the JSON path of the problem. It begins with `$`."""

    def __init__(self, event_type: str, problem: str, path: str) -> None:
        super().__init__(
            f"the schema of {event_type!r} cannot be changed so: {path[: MESSAGE_LENGTH_MAX // 4]}: {problem}",
            {"type": event_type, "path": path[:MESSAGE_LENGTH_MAX]},
        )
        self.event_type = event_type
        self.problem = problem
        self.path = path


class SchemaViolation(StreamError):
    """An event does not match its schema. `path` is the problem's JSON path in the payload. It begins with `$`."""

    def __init__(self, event_type: str, path: str, problem: str) -> None:
        shown = event_type[: MESSAGE_LENGTH_MAX // 4]
        super().__init__(
            f"{shown!r}: {path[: MESSAGE_LENGTH_MAX // 4]}: {problem}",
            {"type": shown, "path": path[: MESSAGE_LENGTH_MAX // 4]},
        )
        self.path = path
        self.problem = problem


class UndescribedViolation(SchemaViolation):
    """An event does not match its schema, but finding the exact problem would take too long."""
