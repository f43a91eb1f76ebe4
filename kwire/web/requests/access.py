"""The rights of the client that sent a request. The middleware sets `request[ACCESS]` before the handler runs.

Handlers check the needs whose names they read themselves: `access_of(request).authorize_topic(Operation.READ, name)`.
A refusal has the status 403 and names the operation and the resource. It is the same whether the resource exists or
not.

The names that are passed to `RequestAccess` are full names (`kwire/access/scope.py`). A client with a scope uses plain
names. The middleware translates the names in the path. A handler translates names that it reads from a body or a query
with `full_name`, and names that it sends with `shown`. For clients without a scope both return the name itself.

A stream `hold`s the rights that it needs for as long as it is open. About every second its connection compares
`revision`. If this number has changed, the session asks `loss` whether it must end.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web

from kwire.access.access import Access, Unrestricted
from kwire.access.acl import CLUSTER_NAME, WILDCARD, Operation, ResourceType
from kwire.access.audit.entries import HTTP, NO_AUDIT, Audit
from kwire.access.principal import Principal
from kwire.access.usage.client_limits import ClientLimits
from kwire.errors import ErrorCode
from kwire.streams.rooms.names import topic_of_room
from kwire.web.answers.errors import NotAuthorized, Refusal, Unauthorized, error_body

# The code of the control message `closed` of a stream whose client has lost the right to it.
FORBIDDEN = "Forbidden"

_CODES: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Login(Protocol):
    """How long the identity of a client is valid."""

    @property
    def revision(self) -> int:
        """A number that changes whenever `is_valid` may have changed. It never decreases."""
        ...

    @property
    def end_reason(self) -> str:
        """The message for a client whose login is no longer valid."""
        ...

    def is_valid(self) -> bool: ...


class PermanentLogin:
    """The login of clients that need no user: anonymous ones, and those with a certificate."""

    __slots__ = ()

    revision = 0
    end_reason = "the login has ended"

    def is_valid(self) -> bool:
        return True


PERMANENT = PermanentLogin()


class RequestAccess:
    """The rights of one client, for one request or for as long as its stream is open."""

    __slots__ = ("_audit", "_held", "_is_any_held", "_is_valid", "_login_revision", "access", "is_restricted", "limits",
                 "login", "scope")  # fmt: skip

    def __init__(
        self,
        access: Access,
        login: Login = PERMANENT,
        audit: Audit = NO_AUDIT,
        limits: ClientLimits | None = None,
    ) -> None:
        self._audit = audit
        # The limits of the client's key; None if it has not logged in with a key.
        self.limits = limits
        self.access = access
        self.scope = access.scope
        self.login = login
        # If False, everything is allowed and stays allowed.
        self.is_restricted = not access.is_unrestricted or login is not PERMANENT
        self._login_revision = login.revision
        self._is_valid = True
        self._held: list[tuple[Operation, ResourceType, str]] = []
        self._is_any_held: tuple[Operation, ResourceType] | None = None

    @property
    def principal(self) -> Principal:
        return self.access.principal

    @property
    def revision(self) -> int:
        """A number that changes whenever a right may have changed."""
        return self.access.revision + self.login.revision

    # --- names

    def full_name(self, plain: str) -> str:
        """Return the full name of a topic, room, group or event id that the client has named."""
        return plain if self.scope is None else self.scope.full_name(plain)

    def shown(self, full: str) -> str:
        """Return a name as the client may see it. A name outside of its scope is an empty string."""
        return full if self.scope is None else self.scope.plain_name(full) or ""

    def shown_text(self, text: str) -> str:
        """Return a message with names as the client may see them."""
        return text if self.scope is None else self.scope.hide_in(text)

    def shown_error(self, error: Exception) -> dict[str, Any]:
        """Return the value of the field "error" with names as the client may see them."""
        body = error_body(error)
        if self.scope is None:
            return body
        text = msgspec.json.encode(body).decode()
        shown: dict[str, Any] = msgspec.json.decode(self.scope.hide_in(text))
        return shown

    def hide_in(self, answer: web.Response) -> None:
        """Replace the full names in the body of an error by plain ones."""
        if self.scope is not None and isinstance(answer.body, bytes):
            answer.body = answer.body.replace(self.scope.prefix.encode(), b"")

    # --- rights

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if not self.is_restricted:
            return True
        return self._has_valid_login() and self.access.allows(operation, resource_type, name)

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise NotAuthorized if the client may not do the operation, Unauthorized if its login has ended."""
        if self.is_restricted and not self.allows(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> Refusal:
        """Record the refusal in the audit log, and return its error."""
        if not self._has_valid_login():
            return Unauthorized(self.login.end_reason)
        self._audit.refused(self.access, HTTP, operation, resource_type, name)
        if self.scope is not None and resource_type is not ResourceType.CLUSTER and name != WILDCARD:
            name = self.shown(name)
        resource = "the cluster" if resource_type is ResourceType.CLUSTER else f"{resource_type.name.lower()} {name}"
        return NotAuthorized(
            f"{self.principal} is not allowed to {operation.name} {resource}",
            code=_CODES[resource_type].name,
            operation=operation.name,
            resource_type=resource_type.name,
            resource=name,
        )

    # --- topics and rooms

    def allows_topic(self, operation: Operation, name: str) -> bool:
        return not self.is_restricted or self.allows(operation, ResourceType.TOPIC, name)

    def authorize_topic(self, operation: Operation, name: str) -> None:
        if self.is_restricted:
            self.authorize(operation, ResourceType.TOPIC, name)

    def allows_room(self, operation: Operation, room: str) -> bool:
        return not self.is_restricted or self.allows(operation, ResourceType.TOPIC, topic_of_room(room))

    def authorize_room(self, operation: Operation, room: str) -> None:
        """Raise NotAuthorized as `authorize` does, or InvalidName."""
        if self.is_restricted:
            self.authorize(operation, ResourceType.TOPIC, topic_of_room(room))

    def allows_creation(self, topic: str) -> bool:
        """Return whether the client may create the topic. As in Kafka, CREATE on the cluster allows it, too."""
        return self.allows_cluster(Operation.CREATE) or self.allows_topic(Operation.CREATE, topic)

    def authorize_creation(self, topic: str) -> None:
        if self.is_restricted and not self.allows_creation(topic):
            raise self.refusal(Operation.CREATE, ResourceType.TOPIC, topic)

    def authorize_room_creation(self, room: str) -> None:
        if self.is_restricted:
            self.authorize_creation(topic_of_room(room))

    # --- groups and the cluster

    def allows_group(self, operation: Operation, group_id: str) -> bool:
        return not self.is_restricted or self.allows(operation, ResourceType.GROUP, group_id)

    def allows_cluster(self, operation: Operation) -> bool:
        return not self.is_restricted or self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorize_cluster(self, operation: Operation) -> None:
        if self.is_restricted:
            self.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    # --- streams

    def hold(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Authorize an operation that the client must be allowed to do for as long as its stream is open."""
        if self.is_restricted:
            self.authorize(operation, resource_type, name)
            self._held.append((operation, resource_type, name))

    def hold_any(self, operation: Operation, resource_type: ResourceType) -> None:
        """As `hold`, for an operation on at least one resource of the type."""
        if self.is_restricted:
            self._is_any_held = (operation, resource_type)
            loss = self.loss()
            if loss is not None:
                raise loss

    def loss(self) -> Refusal | None:
        """Return why the stream of this client must end; None if the client still has all rights that it holds."""
        if not self.is_restricted:
            return None
        if not self._has_valid_login():
            return Unauthorized(self.login.end_reason)
        for one in self._held:
            if not self.access.allows(*one):
                return self.refusal(*one)
        if self._is_any_held is not None and not self.access.allows_any(*self._is_any_held):
            return self.refusal(*self._is_any_held, "*")
        return None

    def _has_valid_login(self) -> bool:
        revision = self.login.revision
        if revision != self._login_revision:
            self._login_revision = revision
            self._is_valid = self._is_valid and self.login.is_valid()
        return self._is_valid


# The access of every client if the port has neither authentication nor an authorizer.
OPEN_ACCESS = RequestAccess(Unrestricted())

ACCESS = web.RequestKey("kwire.access", RequestAccess)


def access_of(request: web.Request) -> RequestAccess:
    """Return the rights of the client. Raises KeyError if the middleware has not set them."""
    return request[ACCESS]
