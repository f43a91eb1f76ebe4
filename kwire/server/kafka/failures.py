"""Log lines about connections of Kafka clients that are closed because of an error.

They have the number of the connection and, if the request is known, its correlation id.
"""

import logging
from typing import Protocol

from kwire.logs.log_context import fields
from kwire.logs.rate_limited_log import RateLimitedLog
from kwire.wire.connection import Request

log = logging.getLogger("kwire.server")


class FailedConnection(Protocol):
    """The connection that is closed. `number` identifies it in the log of this process."""

    number: int
    client_host: str


def log_failed_handler(connection: FailedConnection, request: Request | None = None) -> None:
    """Log the current exception. Called in an `except` clause. `request` is None if it is not known."""
    about = fields(connection=connection.number)
    name = "a handler"
    if request is not None:
        about = fields(connection=connection.number, correlation_id=request.correlation_id)
        name = request.api.name
    log.exception("%s failed; the connection from %s is closed", name, connection.client_host, extra=about)


def log_closed(limited: RateLimitedLog, connection: FailedConnection, reason: str) -> None:
    """Log the reason for which a connection is closed."""
    about = fields(connection=connection.number)
    limited.warning("closing the connection from %s: %s", connection.client_host, reason, extra=about)
