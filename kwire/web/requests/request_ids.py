"""The id of a request, which answers have as the header `X-Request-ID` and log lines as `request_id`; and its trace.

A client may choose the id. An id that is too long or has unusual characters is replaced by a generated one.
"""

import random
import re
from collections.abc import Mapping

from aiohttp import web

from kwire.logs.log_context import RequestContext, current_request_id, set_request
from kwire.streams.events.traceparent import TRACEPARENT, is_valid_traceparent
from kwire.web.requests.origin_policy import cors_headers

REQUEST_ID = "X-Request-ID"
REQUEST_ID_LENGTH_MAX = 128
_ACCEPTED = re.compile(rf"[A-Za-z0-9._:/+=@-]{{1,{REQUEST_ID_LENGTH_MAX}}}")

# Generated ids are random, but not secret. A counter would show clients how many requests others send.
GENERATED_ID_BITS = 96
_random_bits = random.Random().getrandbits


def begin_request(request: web.Request) -> str:
    """Return the id of a new request, and use it in the log lines of the current task from now on."""
    request_id = request.headers.get(REQUEST_ID)
    if request_id is None or not _ACCEPTED.fullmatch(request_id):
        request_id = f"{_random_bits(GENERATED_ID_BITS):024x}"
    set_request(RequestContext(request_id, request.method, request.rel_url))
    return request_id


def common_headers(request: web.Request) -> Mapping[str, str]:
    """Return the headers of every answer, for code that writes the head of an answer itself (a stream)."""
    request_id = current_request_id()
    return cors_headers(request) if request_id is None else {REQUEST_ID: request_id, **cors_headers(request)}


def traceparent_of(request: web.Request) -> str | None:
    """Return the trace context of a request; None if it has none, or an invalid one."""
    given = request.headers.get(TRACEPARENT)
    return given if given is not None and is_valid_traceparent(given) else None
