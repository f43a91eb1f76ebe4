"""What the audit log records: logins, refusals and administrative changes, and the interface to record them.

Code that decides about a client records it at one place each:

- a refusal: `audit.refused(access, KAFKA, operation, resource_type, name)`
- a login: `audit.login(principal, host, KAFKA, mechanism)`, or
  `audit.login_failed(name, host, KAFKA, mechanism, reason)`, with the name of an existing user, or None
- a change: `audit.changed("topic.created", TOPIC, name, {...})`, by the service that has made the change durable

A change is recorded with the client of the current request (`acting`), or with the server itself outside of requests.
Entries have names, never values that may be secret. All methods return immediately and never raise.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from kwire.access.access import Access
from kwire.access.acl import Operation, ResourceType
from kwire.access.principal import Principal

# The ports through which a client acts.
KAFKA, HTTP = "kafka", "http"
# The port of entries about what the server does by itself.
SERVER = "server"
# The port of entries about what a command has changed while the server was stopped.
OFFLINE = "offline"

# The mechanism of logins with a client certificate. Other logins have the name of a SASL mechanism, or `basic`.
CERTIFICATE = "certificate"

LOGIN = "access.login"
DENIED = "access.denied"
# The prefix of the types of logins and refusals. All other entries are changes.
ACCESS_PREFIX = "access."

SUCCESS, FAILURE, DENIAL = "success", "failure", "denied"

# The types of resources in entries. ACLs name the first four; the others exist only in the audit log.
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    one.name for one in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
)
USER, ACL, KEY, WEBHOOK, BROKER, CLIENT_METRICS = "USER", "ACL", "KEY", "WEBHOOK", "BROKER", "CLIENT_METRICS"
QUOTA = "QUOTA"

# The principal of the server itself.
SERVER_PRINCIPAL = Principal("Server", "kwire")

# The principal of a failed login whose user does not exist. The name that the client gave is never recorded, because it
# may be a password that somebody typed in the wrong field.
UNKNOWN_USER = Principal("Unknown", "user")

NOTHING: Mapping[str, object] = {}


class Actor(NamedTuple):
    """Who makes a change: a principal, its host, and the port that it uses."""

    principal: Principal
    host: str
    port: str


THE_SERVER = Actor(SERVER_PRINCIPAL, "", SERVER)

_actor: ContextVar[Actor] = ContextVar("kwire_actor", default=THE_SERVER)


def current_actor() -> Actor:
    """Return the client of the current administrative request, or the server itself."""
    return _actor.get()


def set_actor(actor: Actor) -> None:
    """Set the actor for the rest of the current task. It is for tasks that belong to one client."""
    _actor.set(actor)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Record the changes that the block makes, and the tasks that it starts, as changes by `actor`."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


class AuditEntry(NamedTuple):
    """One entry. `facts` are further fields of its JSON, and must not contain secrets.

    `times` is the number of equal events that the entry stands for.
    """

    type: str
    actor: Actor
    outcome: str
    resource_type: str = ""
    resource: str = ""
    facts: Mapping[str, object] = NOTHING
    times: int = 1

    @property
    def is_change(self) -> bool:
        return not self.type.startswith(ACCESS_PREFIX)

    def shown(self) -> dict[str, object]:
        """Return the fields of the entry's JSON, without the time."""
        fields: dict[str, object] = {
            "principal": str(self.actor.principal),
            "host": self.actor.host,
            "port": self.actor.port,
            "outcome": self.outcome,
        }
        if self.resource_type:
            fields["resource"] = {"type": self.resource_type, "name": self.resource}
        if self.times > 1:
            fields["count"] = self.times
        return {**fields, **self.facts}


class Audit(Protocol):
    """A destination of audit entries. No method blocks or raises."""

    @property
    def has_changes(self) -> bool:
        """Whether changes are recorded. The server's log has them in any case (`change_log.py`)."""
        ...

    def record(self, entry: AuditEntry) -> None:
        """Record an entry. The other methods create entries and call this."""
        ...

    def login(self, principal: Principal, host: str, port: str, mechanism: str) -> None:
        """Record that a client has authenticated."""
        ...

    def login_failed(self, name: str | None, host: str, port: str, mechanism: str, reason: str) -> None:
        """Record that a client could not authenticate. `reason` is never secret.

        `name` is the user that it named. It is None if this user does not exist.
        """
        ...

    def refused(self, access: Access, port: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Record that a client was refused because it lacks a right."""
        ...

    def changed(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        """Record a change that the current actor has made, for example `topic.created`."""
        ...

    def changed_again(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        """As `changed`, for a change that clients may repeat often: repetitions are counted. `facts` are hashable."""
        ...


class NoAudit:
    """An `Audit` that records nothing."""

    has_changes = False

    def record(self, entry: AuditEntry) -> None:
        """Do nothing."""

    def login(self, principal: Principal, host: str, port: str, mechanism: str) -> None:
        """Do nothing."""

    def login_failed(self, name: str | None, host: str, port: str, mechanism: str, reason: str) -> None:
        """Do nothing."""

    def refused(self, access: Access, port: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Do nothing."""

    def changed(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        """Do nothing."""

    def changed_again(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        """Do nothing."""


NO_AUDIT: Audit = NoAudit()


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, object]:
    """Return the names of settings that were set and removed, without their values."""
    facts: dict[str, object] = {}
    if is_set := sorted(name for name, value in after.items() if before.get(name) != value):
        facts["set"] = is_set
    if removed := sorted(before.keys() - after.keys()):
        facts["removed"] = removed
    return facts
