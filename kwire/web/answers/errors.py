"""Errors as HTTP answers: the HTTP status of each error, and one JSON format for all errors.

The format is `{"error": {"code", "message", …}}`. Programs use `code`, which does not change. `message` is for people.
Some errors have further fields, for example OffsetOutOfRange has `requested`, `oldest` and `newest`. An error on a
WebSocket has the same format.

The statuses:
- 400: the request is invalid
- 401: the request has no valid credentials
- 403: the client, the origin or the host is not allowed to do this, or the operation is disabled
- 404: not found
- 408: the body arrived too slowly
- 409: the request conflicts with existing state
- 413: the request is too large
- 415: the media type of the body is not supported
- 422: valid JSON with invalid content, only in the REST Proxy routes
- 429: a maximum number is reached, for example of rooms, subscribers or webhooks, or a quota is exceeded
- 503: the storage failed, the memory is exhausted, or the node is not ready

docs/http.md has a table for users.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from kwire.errors import ErrorCode, EventStoreUnavailable, KafkaError, StreamError, WebhooksUnavailable
from storage.errors import PartitionOffline, StorageError

log = logging.getLogger("kwire.web")

RETRY_AFTER_SECONDS = 1
# Longer messages are truncated. A message may quote a part of the request.
MESSAGE_LENGTH_MAX = 1000

STREAM_STATUSES: Mapping[str, int] = {
    "RoomNotFound": 404,
    "EventNotFound": 404,
    "OffsetOutOfRange": 400,
    "SubscriptionFailed": 400,
    "BroadcastFailed": 503,
    "InvalidName": 400,
    "TopicHasPartitions": 409,
    "NotARoom": 409,
    "TooManyRooms": 429,
    "TooManySubscribers": 429,
    "InvalidEvent": 400,
    "EventTooLarge": 413,
    "TopicNotFound": 404,
    "NotAnEventTopic": 400,
    "WrongExpectedVersion": 409,
    "IdempotencyConflict": 409,
    "InvalidSchema": 400,
    "IncompatibleSchema": 409,
    "SchemaViolation": 400,
    "InvalidWebhook": 400,
    "WebhookNotFound": 404,
    "WebhookConflict": 409,
    "TooManyWebhooks": 429,
    "WebhooksUnavailable": 503,
    "EventStoreUnavailable": 503,
}

KAFKA_STATUSES: Mapping[ErrorCode, int] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ),
        404,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.DUPLICATE_RESOURCE,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ),
        409,
    ),
    **dict.fromkeys(
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.RECORD_LIST_TOO_LARGE,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ),
        413,
    ),
    **dict.fromkeys((ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.THROTTLING_QUOTA_EXCEEDED), 429),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_DELETION_DISABLED,
        ),
        403,
    ),
    **dict.fromkeys(
        (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        503,
    ),
}


class Refusal(Exception):
    """An error of the HTTP port itself, with its own status and code."""

    status = 400
    code = "BadRequest"
    # Further headers of the answer.
    headers: Mapping[str, str] = {}

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class BadRequest(Refusal):
    """The request is malformed: invalid JSON, a wrong type or a missing field."""


class UnsupportedMediaType(Refusal):
    status = 415
    code = "UnsupportedMediaType"


class BodyTooLarge(Refusal):
    status = 413
    code = "BodyTooLarge"


class Forbidden(Refusal):
    """The origin or the host of the request is not allowed (origin_policy.py)."""

    status = 403
    code = "Forbidden"


class NotAuthorized(Refusal):
    """The client may not do an operation on a resource. `code` is Kafka's code of the resource type."""

    status = 403


class Unauthorized(Refusal):
    """The request has no valid credentials. The message must not quote credentials."""

    status = 401
    code = "Unauthorized"


class ErrorFacts(msgspec.Struct, kw_only=True):
    """The code and message of an error. `code` does not change. `message` is for people and may change."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct, kw_only=True):
    """The body of every answer with a status of 400 or more. `error` may have further fields, depending on its code."""

    error: ErrorFacts


def status_of(exception: Exception) -> int:
    match exception:
        case StreamError():
            return STREAM_STATUSES.get(exception.code, 400)
        case KafkaError():
            return KAFKA_STATUSES.get(exception.code, 400)
        case Refusal():
            return exception.status
        case web.HTTPException():
            return exception.status
        case StorageError():
            return 503
    return 500


def error_body(exception: Exception) -> dict[str, Any]:
    """Return the value of the field "error". It is the same over HTTP and on a WebSocket."""
    match exception:
        case StreamError() | Refusal():
            return {"code": exception.code, "message": exception.message[:MESSAGE_LENGTH_MAX], **exception.details}
        case KafkaError():
            return {"code": exception.code.name, "message": str(exception)[:MESSAGE_LENGTH_MAX]}
        case web.HTTPException():
            return {"code": exception.reason.replace(" ", ""), "message": _http_message(exception)}
        case PartitionOffline():
            return {"code": ErrorCode.KAFKA_STORAGE_ERROR.name, "message": str(exception)[:MESSAGE_LENGTH_MAX]}
        case StorageError():
            return {
                "code": ErrorCode.KAFKA_STORAGE_ERROR.name,
                "message": "the log cannot be read or written; see the server's log",
            }
    return {"code": "InternalError", "message": "the server failed; see the server's log"}


def error_answer(exception: Exception) -> web.Response:
    status = status_of(exception)
    # Why something is unavailable is logged once, when it becomes so.
    if status >= 500 and not isinstance(exception, Refusal | EventStoreUnavailable | WebhooksUnavailable):
        log.error("a request failed", exc_info=exception)
    headers = dict(exception.headers) if isinstance(exception, Refusal) else {}
    if status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    if isinstance(exception, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(exception.allowed_methods))
    return web.Response(
        body=_encoded(error_body(exception)), status=status, headers=headers, content_type="application/json"
    )


def _encoded(error: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode({"error": error})
    except UnicodeEncodeError:
        # The message quotes a header of the request that is not valid UTF-8.
        shown = {name: text_of(value) if isinstance(value, str) else value for name, value in error.items()}
        return msgspec.json.encode({"error": shown})


def text_of(value: str) -> str:
    """Escape unpaired surrogates, so that the text can be encoded as UTF-8."""
    return value.encode(errors="backslashreplace").decode()


def _http_message(exception: web.HTTPException) -> str:
    match exception:
        case web.HTTPNotFound():
            return "this path does not exist; /openapi.json lists all paths"
        case web.HTTPMethodNotAllowed():
            return (
                f"method {exception.method} is not allowed for this path; the header Allow lists the methods that are"
            )
        case web.HTTPRequestEntityTooLarge():
            return exception.text or exception.reason
    return exception.reason
