"""A webhook has the rights of its creator: it may deliver the events of a topic only while its creator may read it.

The rights are checked when a webhook is registered, changed or resumed. While it delivers, they are checked whenever
the authorizer's revision has changed. A webhook whose creator has lost a right is disabled. It does not continue by
itself when the right returns: somebody has to resume it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kwire.access.acl import Operation, ResourceType
from kwire.access.audit.entries import THE_SERVER, current_actor
from kwire.access.authorizer import Authorizer
from kwire.access.principal import ANONYMOUS, Principal
from kwire.errors import ErrorCode, KafkaError

# How often the revision of the authorizer is compared.
CHECK_SECONDS = 1.0
# Webhooks are checked as clients of this host, because the server itself reads the topics.
WEBHOOK_HOST = "127.0.0.1"


def client_principal() -> Principal:
    """Return the principal of the client whose request is handled; ANONYMOUS outside of requests."""
    actor = current_actor()
    return ANONYMOUS if actor is THE_SERVER else actor.principal


class CreatorRights:
    """The rights of the creators of webhooks. `changed` is called on the event loop after rights have changed."""

    def __init__(self, authorizer: Authorizer, call_later: Callable[..., Any]) -> None:
        self._authorizer = authorizer
        self._call_later = call_later
        self._timer: asyncio.TimerHandle | None = None
        self._revision = -1

    def missing(self, creator: Principal, topics: Iterable[str]) -> str | None:
        """Return why a webhook of this creator may not deliver the events of these topics; None if it may."""
        access = self._authorizer.access(creator, WEBHOOK_HOST)
        if access.is_unrestricted:
            return None
        for name in topics:
            if not access.allows(Operation.READ, ResourceType.TOPIC, name):
                return f"its creator {creator} may not read the topic {name!r} from host {WEBHOOK_HOST}"
        return None

    def check(self, creator: Principal, topics: Iterable[str]) -> None:
        """Raise KafkaError TOPIC_AUTHORIZATION_FAILED if a webhook of this creator may not deliver these topics."""
        reason = self.missing(creator, topics)
        if reason is not None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the webhook cannot be active: {reason}")

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` now and after each change of rights, until `close`."""
        if not self._authorizer.can_change:
            return
        if self._authorizer.revision != self._revision:
            self._revision = self._authorizer.revision
            changed()
        self._timer = self._call_later(CHECK_SECONDS, self.watch, changed)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
