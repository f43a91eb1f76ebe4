"""The context of requests about ACLs, users and quotas, which a bridge answers itself, as a server does."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kwire.access.authorizer import Authorizer
from kwire.access.quotas.quotas import Quotas
from kwire.access.users.users import Users
from kwire.handlers.shared.rights import ClusterRights
from kwire.wire.codec import EncodedElements


class AccessServices(Protocol):
    """The services of these handlers."""

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def users(self) -> Users: ...

    @property
    def quotas(self) -> Quotas: ...


class AccessContext(Protocol):
    """The part of a request's context that these handlers use."""

    @property
    def api_version(self) -> int: ...

    @property
    def services(self) -> AccessServices: ...

    @property
    def cluster(self) -> ClusterRights: ...

    def elements_encoder(self, cls: type[Any], array: str) -> Callable[[Sequence[Any]], bytes]: ...

    def encoded_elements(self, count: int, chunks: Iterable[bytes]) -> EncodedElements: ...
