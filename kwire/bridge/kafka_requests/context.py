"""The context of a request that a bridge handles: its rights, and the services of the handlers."""

from collections.abc import Callable
from typing import NamedTuple

from kwire.access.access import Access
from kwire.access.audit.entries import HTTP, Audit
from kwire.access.authorizer import Authorizer
from kwire.access.quotas.quotas import Quotas
from kwire.access.scope import ScopedNames
from kwire.access.users.users import Users
from kwire.bridge.kafka_requests.upstream import Upstream
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.client_context import ClientContext
from kwire.handlers.shared.rights import ClusterRights, GroupRights, TopicRights, TransactionRights
from kwire.kafka_client.topic_names import INTERNAL_PREFIX


class RequestServices(NamedTuple):
    """The services that the handlers of a bridge use."""

    authorizer: Authorizer
    users: Users
    quotas: Quotas
    audit: Audit
    upstream: Upstream
    # Called with the name of a topic that was created, changed or deleted.
    on_topic_change: Callable[[str], None]
    is_event_topic: Callable[[str], bool]
    # Whether clients may delete topics: delete.topic.enable.
    is_delete_allowed: bool


class RequestContext(ClientContext):
    """The context of one request. Names are full names."""

    __slots__ = (
        "_names",
        "access",
        "api_version",
        "cluster",
        "groups",
        "prefix",
        "quota",
        "services",
        "topics",
        "transactions",
    )

    def __init__(self, services: RequestServices, access: Access, api_version: int) -> None:
        self.services = services
        self.access = access
        self.api_version = api_version
        quotas = services.quotas
        self.quota = quotas.client(access.principal.name, None) if quotas.is_any_client else None
        self.cluster = ClusterRights(services.audit, access, HTTP)
        self.topics = TopicRights(services.audit, access, HTTP)
        self.groups = GroupRights(services.audit, access, HTTP)
        self.transactions = TransactionRights(services.audit, access, HTTP)
        self._names = None if access.scope is None else ScopedNames(access.scope)
        # The beginning of the names that the client can see; empty without a scope.
        self.prefix = "" if access.scope is None else access.scope.prefix

    @property
    def names(self) -> ScopedNames | None:
        return self._names

    @property
    def upstream(self) -> Upstream:
        return self.services.upstream

    @property
    def audit(self) -> Audit:
        return self.services.audit


def check_is_not_internal(name: str) -> None:
    """Raise KafkaError if a topic belongs to the cluster or to the bridge. Users do not change such a topic."""
    if name.startswith(INTERNAL_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' is internal: names that begin with {INTERNAL_PREFIX} are the cluster's own.",
        )
