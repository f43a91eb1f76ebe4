"""The key of a request, its publish rate, and the names and errors that its client sees.

The statuses of this API differ from those of rooms: refusals of limits have the status 400 (events) or 503
(subscriptions), never 429, and failures of the storage have the status 500.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import hdrs, web

from kwire.access.keys.key import Key
from kwire.access.principal import KEY
from kwire.access.quotas.client_quota import Exceeded
from kwire.access.usage.publish_rates import RateExceeded
from kwire.errors import KafkaError, TooManySubscribers
from kwire.metastore import Conflict
from kwire.web.answers.errors import BadRequest, Refusal, Unauthorized, status_of
from kwire.web.requests.access import access_of
from kwire.web.requests.key_limits import rate_refusal
from kwire.web.requests.quotas import quota_refusal
from kwire.web.services import DbEventServices
from storage.errors import StorageError

log = logging.getLogger("kwire.web")

CHALLENGE = 'Bearer realm="kwire"'


# The status of a request that exceeds a limit of events or a quota.
LIMIT_STATUS = 400


class Unavailable(Refusal):
    """There are too many subscriptions or connections."""

    status = 503


def key_of(services: DbEventServices, request: web.Request) -> Key:
    """Return the key of the client. Raises Unauthorized if it has logged in without one."""
    principal = access_of(request).principal
    key = services.usage.keys.valid(principal.name) if principal.type == KEY else None
    if key is None:
        raise unauthorized("this path needs an API key: send its token as Authorization: Bearer TOKEN")
    return key


def root_key_of(services: DbEventServices, request: web.Request) -> Key:
    """Return the root key of the client. Raises Unauthorized if it has none."""
    key = key_of(services, request)
    if not key.is_root:
        raise unauthorized("this path needs a root key")
    return key


def unauthorized(message: str) -> Unauthorized:
    error = Unauthorized(message)
    error.headers = {hdrs.WWW_AUTHENTICATE: CHALLENGE}
    return error


def check_rate(services: DbEventServices, key: Key) -> None:
    """Count a request against the key's publish rate. Raises LimitReached."""
    rate = key.limits.publish_rate
    if rate is None:
        return
    try:
        services.usage.rates.take(key.usage_id, rate, services.port.clock.monotonic())
    except RateExceeded as error:
        services.sessions.metrics.refused_rate += 1
        raise with_limit_status(rate_refusal(error)) from None


def with_limit_status(refusal: Refusal) -> Refusal:
    """Return a refusal of other routes, with the status of this API."""
    refusal.status = LIMIT_STATUS
    return refusal


def refuse_quota(exceeded: Exceeded) -> Refusal:
    """Return the refusal of a request that exceeds a quota."""
    return with_limit_status(quota_refusal(exceeded))


def full_name(key: Key, topic: str) -> str:
    """Return the name of the room that stores a topic. Raises BadRequest if the topic is empty.

    Only a root key may have no scope. Its topics are rooms without a scope.
    """
    if not topic:
        raise BadRequest("topic is missing or empty", code="MissingTopic")
    return topic if key.scope is None else key.scope.full_name(topic)


@contextmanager
def db_statuses() -> Iterator[None]:
    """Replace the statuses of some errors by those of this API."""
    try:
        yield
    except TooManySubscribers as error:
        raise Unavailable(error.message, code=error.code) from error
    except (StorageError, Conflict) as error:
        log.error("a request failed", exc_info=error)
        raise _internal(error) from error
    except KafkaError as error:
        if status_of(error) < 500:
            raise
        log.error("a request failed", exc_info=error)
        raise _internal(error) from error


def _internal(error: Exception) -> Refusal:
    code = error.code.name if isinstance(error, KafkaError) else "InternalError"
    return Refusal("the event or its count could not be stored; see the server's log", code=code, status=500)
