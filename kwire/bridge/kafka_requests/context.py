"""The context of a request that a bridge handles: its rights, and the services of the handlers."""

from typing import NamedTuple

from kwire.access.access import Access
from kwire.access.audit.entries import HTTP, Audit
from kwire.access.authorizer import Authorizer
from kwire.access.quotas.quotas import Quotas
from kwire.access.scope import ScopedNames
from kwire.access.users.users import Users
from kwire.handlers.shared.answer_encoding import AnswerEncoding
from kwire.handlers.shared.rights import ClusterRights


class RequestServices(NamedTuple):
    """The services that the handlers of a bridge use."""

    authorizer: Authorizer
    users: Users
    quotas: Quotas
    audit: Audit


class RequestContext(AnswerEncoding):
    """The context of one request. Names are full names."""

    __slots__ = ("_names", "access", "api_version", "cluster", "services")

    def __init__(self, services: RequestServices, access: Access, api_version: int) -> None:
        self.services = services
        self.access = access
        self.api_version = api_version
        self.cluster = ClusterRights(services.audit, access, HTTP)
        self._names = None if access.scope is None else ScopedNames(access.scope)

    @property
    def names(self) -> ScopedNames | None:
        return self._names
