"""The HTTP request of the current task, for the fields of log lines.

A log call adds further fields with `extra=fields(connection=12, correlation_id=7)`. The text format appends all fields
to the message, and the JSON format writes them as fields of the object. Values must not be secret.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import NamedTuple, Protocol

FIELDS_ATTRIBUTE = "kwire_fields"


class RequestUrl(Protocol):
    """The URL of a request. Its query may contain secrets, so only the path is logged."""

    @property
    def path(self) -> str: ...


class RequestContext(NamedTuple):
    """What log lines say about the HTTP request that caused them."""

    request_id: str
    method: str
    url: RequestUrl


_request: ContextVar[RequestContext | None] = ContextVar("kwire_request", default=None)


def set_request(context: RequestContext) -> None:
    """Set the request of the current task, until the next call. It is for tasks that serve one connection."""
    _request.set(context)


def current_request_id() -> str | None:
    """Return the id of the request that the current task handles."""
    context = _request.get()
    return None if context is None else context.request_id


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """Return the argument `extra` of a log call that adds these fields to the line."""
    return {FIELDS_ATTRIBUTE: values}


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a line: those of the request, and those of the log call."""
    found: dict[str, object] = {}
    context = _request.get()
    if context is not None:
        found = {"request_id": context.request_id, "method": context.method, "path": context.url.path}
    found.update(getattr(record, FIELDS_ATTRIBUTE, {}))
    return found
