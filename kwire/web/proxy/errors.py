"""Errors in the format of REST Proxy v2: `{"error_code", "message"}`.

If REST Proxy defines a code for the error, `error_code` is that code. Otherwise it is the HTTP status. The codes:
- 40002: the request was refused
- 40101: no valid credentials
- 40301: not allowed
- 40401: the topic does not exist
- 40402: the partition does not exist
- 40403: the topic or the partition does not exist
- 422: valid JSON with invalid content
- 50002: the server failed
- 50003: the server failed, and the request may be retried
"""

import logging

import msgspec
from aiohttp import web

from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.web.answers.errors import (
    RETRY_AFTER_SECONDS,
    BadRequest,
    NotAuthorized,
    Refusal,
    Unauthorized,
    error_body,
    status_of,
    text_of,
)
from kwire.web.proxy.media import PROXY
from kwire.web.topics.lookup import PartitionNotFound, TopicNotFound
from storage.errors import StorageError

log = logging.getLogger("kwire.web")

BAD_REQUEST = 40002
NOT_AUTHENTICATED = 40101
NOT_ALLOWED = 40301
TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
UNKNOWN_TOPIC_OR_PARTITION = 40403
UNPROCESSABLE = 422
KAFKA_FAILED = 50002
KAFKA_FAILED_RETRIABLE = 50003


class ProxyError(msgspec.Struct, kw_only=True):
    """The body of every REST Proxy answer with a status of 400 or more."""

    error_code: int
    message: str


def record_code(error: KafkaError | StreamError) -> int:
    """Return the error code of a record that could not be stored. It shows whether the record may be sent again."""
    return KAFKA_FAILED_RETRIABLE if status_of(error) == 503 else KAFKA_FAILED


def proxy_error_answer(exception: Exception) -> web.Response:
    status, code = _status_and_code(exception)
    if status >= 500 and not isinstance(exception, Refusal):
        log.error("a request failed", exc_info=exception)
    message = text_of(error_body(exception)["message"])
    body = msgspec.json.encode(ProxyError(error_code=code, message=message))
    headers = dict(exception.headers) if isinstance(exception, Refusal) else {}
    if status == 503:
        headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    if isinstance(exception, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(exception.allowed_methods))
    return web.Response(body=body, status=status, headers=headers, content_type=PROXY)


def _status_and_code(exception: Exception) -> tuple[int, int]:
    status = status_of(exception)
    match exception:
        case Unauthorized():
            return status, NOT_AUTHENTICATED
        case NotAuthorized():
            return status, NOT_ALLOWED
        case TopicNotFound():
            return status, TOPIC_NOT_FOUND
        case PartitionNotFound():
            return status, PARTITION_NOT_FOUND
        case BadRequest() if exception.code == BadRequest.code:
            # The body is valid JSON with invalid content.
            return UNPROCESSABLE, UNPROCESSABLE
        case KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return status, UNKNOWN_TOPIC_OR_PARTITION
        case KafkaError() | StorageError() if status >= 500:
            return 500, KAFKA_FAILED_RETRIABLE if status == 503 else KAFKA_FAILED
        case KafkaError() if status == 403:
            return status, NOT_ALLOWED
        case KafkaError() | StreamError() if status == 400:
            return status, BAD_REQUEST
    return status, status
