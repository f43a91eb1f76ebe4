"""Errors as clients of REST Proxy v2 know them: `{"error_code", "message"}`.

A code has five digits where REST Proxy has one of its own, and is the HTTP status where it has not. 40401 no topic,
40402 no partition, 40002 a request that Kafka refuses, 40301 not allowed, 422 a body that is JSON but says something
else than it should, 50002 Kafka failed, 50003 Kafka failed and the request may be sent again.
"""

import logging

import msgspec
from aiohttp import web

from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.web.errors import RETRY_AFTER_SECONDS, BadRequest, Refusal, error_body, status_of, text_of
from kwire.web.proxy.media import PROXY
from kwire.web.topics.lookup import PartitionNotFound, TopicNotFound
from storage.errors import StorageError

log = logging.getLogger("kwire.web")

BAD_REQUEST = 40002
NOT_ALLOWED = 40301
TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
UNKNOWN_TOPIC_OR_PARTITION = 40403
UNPROCESSABLE = 422
KAFKA_FAILED = 50002
KAFKA_FAILED_RETRIABLE = 50003


class ProxyError(msgspec.Struct, kw_only=True):
    """What every answer of REST Proxy with a status of 400 or more has."""

    error_code: int
    message: str


def record_code(error: KafkaError | StreamError) -> int:
    """What is said of a record that could not be stored: whether it is worth another try."""
    return KAFKA_FAILED_RETRIABLE if status_of(error) == 503 else KAFKA_FAILED


def proxy_error_answer(exception: Exception) -> web.Response:
    status, code = _status_and_code(exception)
    if status >= 500 and not isinstance(exception, Refusal):
        log.error("a request failed", exc_info=exception)
    message = text_of(error_body(exception)["message"])
    body = msgspec.json.encode(ProxyError(error_code=code, message=message))
    headers = {}
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(exception, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(exception.allowed_methods))
    return web.Response(body=body, status=status, headers=headers, content_type=PROXY)


def _status_and_code(exception: Exception) -> tuple[int, int]:
    status = status_of(exception)
    match exception:
        case TopicNotFound():
            return status, TOPIC_NOT_FOUND
        case PartitionNotFound():
            return status, PARTITION_NOT_FOUND
        case BadRequest() if exception.code == BadRequest.code:
            # It could be read, and says something else than it should.
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
