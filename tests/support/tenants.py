"""A server with two tenants, `a` and `b`, and an administrator: `async with tenant_http(engine) as http: …`.

The tenants log in as users. The authorizer gives their keys an access with a scope.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

from kwire.access.access import Access
from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import KEY, USER, Principal, parse_principal
from kwire.access.scope import Scope
from kwire.access.scoped_access import ScopedAccess
from kwire.config.access import AccessConfig
from kwire.metastore import MetaStore
from tests.support.engines import Engine
from tests.support.http_access import SETTINGS, AccessHttp, FakeUsers, access_http, basic

SCOPES = {"a": Scope("acme", "aaaaaaaaaaa"), "b": Scope("bolt", "bbbbbbbbbbb")}
# A second client of the scope of `a`.
SCOPES["a2"] = SCOPES["a"]
# A scope that no client has.
NO_SCOPE = Scope("none", "ccccccccccc")
PASSWORDS = {"admin": "a-secret", "a": "of-a", "a2": "of-a2", "b": "of-b"}
A, A2, B = basic("a", "of-a"), basic("a2", "of-a2"), basic("b", "of-b")


class TenantAuthorizer(AclAuthorizer):
    """An authorizer whose tenants have scopes, whether they come with a password or as the creator of a webhook."""

    def access(self, principal: Principal, host: str) -> Access:
        scope = SCOPES.get(principal.name) if principal.type in (USER, KEY) else None
        if scope is None:
            return super().access(principal, host)
        return ScopedAccess(Principal(KEY, principal.name), host, scope)


def tenant_authorizer(
    config: AccessConfig, metastore: MetaStore, audit: Audit = NO_AUDIT, *_others: object
) -> TenantAuthorizer:
    return TenantAuthorizer(metastore, map(parse_principal, config.super_users), audit=audit)


@asynccontextmanager
async def tenant_http(engine: Engine, *settings: str) -> AsyncIterator[AccessHttp]:
    with (
        patch("kwire.node.authorizer_of", tenant_authorizer),
        patch("kwire.bridge.process.authorizer_of", tenant_authorizer),
    ):
        async with access_http(engine, *SETTINGS, *settings, users=FakeUsers(**PASSWORDS)) as http:
            yield http
