"""The messages for Kafka's error codes. Servers send a message with some errors only."""

import re

from kwire.cli.connection.errors import Refused
from kwire.errors import ErrorCode

_ADD_RIGHTS = "an administrator adds it with kwire acl add"

_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist",
    ErrorCode.UNKNOWN_TOPIC_ID: "does not exist",
    ErrorCode.TOPIC_ALREADY_EXISTS: "exists already",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "is not a valid name",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist",
    ErrorCode.NON_EMPTY_GROUP: "has members: stop its consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "has members: stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "is subscribed to the topic: stop its consumers first",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "is being loaded: try again in a moment",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "has no coordinator yet: try again in a moment",
    ErrorCode.NOT_COORDINATOR: "has no coordinator yet: try again in a moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "has no leader yet: try again in a moment",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"the user has no right to do this with the topic; {_ADD_RIGHTS}",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"the user has no right to do this with the group; {_ADD_RIGHTS}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user has no right to do this; it needs rights on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f"the user has no right to do this with the transactional id; {_ADD_RIGHTS}"
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "does not exist",
    ErrorCode.CONCURRENT_TRANSACTIONS: "is ending its last transaction: try again in a moment",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has taken over",
    ErrorCode.POLICY_VIOLATION: "a policy of the server does not allow it",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid",
    ErrorCode.LEADER_NOT_AVAILABLE: "has no leader at the moment",
    ErrorCode.REQUEST_TIMED_OUT: "the server did not finish in time",
    ErrorCode.NOT_CONTROLLER: "this server is not the controller of its cluster",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than max.message.bytes of the topic: use a smaller --batch-size",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a batch is larger than a segment of the topic: use a smaller --batch-size",
    ErrorCode.NOT_ENOUGH_REPLICAS: "has fewer replicas in sync than min.insync.replicas requires",
    ErrorCode.INVALID_RECORD: "the server refuses a record; compacted topics need a key for every record",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp is further from the server's time than the topic allows",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the server lacks earlier records of this producer: run the command again",
    ErrorCode.OFFSET_OUT_OF_RANGE: "is after the end of the log",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "has as many members as the server allows",
    ErrorCode.INVALID_GROUP_ID: "is not a valid group id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "has members that use another protocol or another assignor than range",
    ErrorCode.REBALANCE_IN_PROGRESS: "is rebalancing again and again: try again in a moment",
}

# The texts of these codes say everything. Servers have several messages for each of them, some of which name nothing.
_COMPLETE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


def code_text(code: int, message: str | None = None) -> str:
    """Return the server's message, or what an error code means. Codes without a text have Kafka's name."""
    if message:
        return message
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error {code}"
    return _TEXTS.get(known, known.name)


def check(subject: str, code: int, message: str | None = None) -> None:
    """Raise Refused if an error code of a response is not 0. `subject` is, for example, `topic orders`."""
    if code:
        raise Refused(refusal(subject, code, message))


def refusal(subject: str, code: int, message: str | None = None) -> str:
    """Return the message for an error of one thing: `topic orders does not exist`."""
    if code in _COMPLETE:
        message = None
    text = code_text(code, message)
    # A short name can be a part of other words of the message.
    if message and re.search(rf"(?<!\w){re.escape(re.split('[ =]', subject)[-1])}(?!\w)", message):
        return message
    is_predicate = not message and text.split(" ")[0] in ("does", "exists", "is", "has")
    return f"{subject} {text}" if is_predicate else f"{subject}: {text}"
