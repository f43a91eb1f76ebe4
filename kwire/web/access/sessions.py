"""/session: log in, log out, and what the client of a request may do. For browsers.

`session_store.py` describes how long a session is valid, `session_cookie.py` which requests may use its cookie.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from aiohttp import hdrs, web

from kwire.access.acl import OPERATIONS, WILDCARD, AclFilter, Operation, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import ANONYMOUS, KEY
from kwire.access.roles import Role, roles_of
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.web.access.session_cookie import (
    check_page_origin,
    check_session_origin,
    remove_session_cookie,
    session_token_of,
    set_session_cookie,
)
from kwire.web.access.session_store import AGE_SECONDS_MAX, IDLE_SECONDS, Session
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.needs import AUTHENTICATED, OPTIONAL
from kwire.web.requests.access import PERMANENT, RequestAccess, access_of
from kwire.web.requests.bodies import json_answer
from kwire.web.route import Answer, Route
from kwire.web.services import AccessServices

Kind = Literal["anonymous", "user", "key", "certificate"]


class SessionTimes(msgspec.Struct, kw_only=True):
    idle_secs: Annotated[int, msgspec.Meta(description="The session ends if no request uses it for this time.")]
    expires_in_secs: Annotated[int, msgspec.Meta(description="The session ends after this time in any case.")]


class ClientFacts(msgspec.Struct, kw_only=True):
    """The client of the request, and what it may do."""

    principal: Annotated[str, msgspec.Meta(description="For example `User:alice`. Null if a login is needed.")] | None
    kind: Kind
    login_needed: Annotated[bool, msgspec.Meta(description="Whether requests without credentials are refused.")]
    login_methods: Annotated[
        list[str], msgspec.Meta(description="The methods of `kwire.http.authentication`: basic, key, certificate.")
    ]
    scope: Annotated[str, msgspec.Meta(description="The scope of a tenant's key.")] | None
    role: (
        Annotated[
            Role, msgspec.Meta(description="The role, if the client may do exactly what one role allows on all names.")
        ]
        | None
    )
    has_acls: Annotated[bool, msgspec.Meta(description="Whether the server has an authorizer with ACLs.")]
    password_length_min: Annotated[int, msgspec.Meta(description="The minimum length of new passwords in characters.")]
    reads_audit: Annotated[bool, msgspec.Meta(description="Whether the client may READ the audit log.")]
    cluster_operations: Annotated[list[str], msgspec.Meta(description="Operations that are allowed on the cluster.")]
    topic_operations: Annotated[
        list[str],
        msgspec.Meta(description="Operations that are allowed on at least one topic, which may not exist yet."),
    ]
    session: SessionTimes | None


async def create_session(services: AccessServices, request: web.Request) -> web.Response:
    if services.authenticator is None:
        raise Refusal(
            "sessions are not needed: kwire.http.authentication is not set", code="AuthenticationDisabled", status=403
        )
    check_page_origin(request)
    access = access_of(request)
    if hdrs.AUTHORIZATION not in request.headers or access.login is PERMANENT:
        raise BadRequest("a session needs the header Authorization: send a user and password (Basic) or a key (Bearer)")
    sessions = services.authenticator.sessions
    previous = session_token_of(request)
    created = sessions.create(access.principal, access.login)
    if previous is not None:
        sessions.end(previous)
    answer = json_answer(await _facts(services, access, created.session), 201)
    set_session_cookie(request, answer, created.token)
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


async def show_session(services: AccessServices, request: web.Request) -> web.Response:
    access = access_of(request)
    session = access.login if isinstance(access.login, Session) else None
    answer = json_answer(await _facts(services, access, session))
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


async def end_session(services: AccessServices, request: web.Request) -> web.Response:
    token = session_token_of(request)
    if token is not None and services.authenticator is not None:
        check_session_origin(request)
        services.authenticator.sessions.end(token)
    answer = web.Response(status=204)
    remove_session_cookie(request, answer)
    return answer


async def _facts(services: AccessServices, access: RequestAccess, session: Session | None) -> ClientFacts:
    authenticator = services.authenticator
    kind = _kind(access)
    needs_login = authenticator is not None and kind == "anonymous"
    operations: Mapping[ResourceType, tuple[Operation, ...]] = {} if needs_login else OPERATIONS
    return ClientFacts(
        principal=None if needs_login else str(access.principal),
        kind=kind,
        login_needed=authenticator is not None,
        login_methods=[] if authenticator is None else list(authenticator.methods),
        scope=None if access.scope is None else access.scope.name,
        role=None if needs_login else await _role(services, access),
        has_acls=services.authorizer.is_enabled,
        password_length_min=services.password_length_min,
        reads_audit=not needs_login and access.allows_topic(Operation.READ, AUDIT_TOPIC),
        cluster_operations=[one.name for one in operations.get(ResourceType.CLUSTER, ()) if access.allows_cluster(one)],
        topic_operations=[
            one.name
            for one in operations.get(ResourceType.TOPIC, ())
            if access.access.allows_any(one, ResourceType.TOPIC)
        ],
        session=(
            None if session is None else SessionTimes(idle_secs=IDLE_SECONDS, expires_in_secs=session.seconds_left)
        ),
    )


def _kind(access: RequestAccess) -> Kind:
    if access.principal == ANONYMOUS:
        return "anonymous"
    if access.principal.type == KEY:
        return "key"
    return "certificate" if access.login is PERMANENT else "user"


async def _role(services: AccessServices, access: RequestAccess) -> Role | None:
    if access.access.is_unrestricted:
        return Role.ADMIN
    if access.principal.type == KEY or not isinstance(services.authorizer, AclAuthorizer):
        return None
    summary = roles_of(await services.authorizer.find(AclFilter(principal=str(access.principal))))
    if summary.others or len(summary.grants) != 1 or summary.grants[0].prefix != WILDCARD:
        return None
    return summary.grants[0].role


_COOKIE = "`HttpOnly; SameSite=Strict; Path=/`, and over https `Secure`"

ROUTES: tuple[Route[AccessServices], ...] = (
    Route(
        "POST",
        "/session",
        create_session,
        summary="Log in: create a browser session",
        description=(
            "The request has the header Authorization with a user and password (Basic) or a key (Bearer). The answer "
            f"sets the cookie `kwire_session` ({_COOKIE}). The cookie authenticates every route, also streams and "
            "WebSockets, but only requests of pages of this server: a request that changes something needs the header "
            f"Origin or Sec-Fetch-Site. A session ends after {IDLE_SECONDS // 60} minutes without a request, after "
            f"{AGE_SECONDS_MAX // 3600} hours, when the user is deleted or gets another password, and when the key is "
            "revoked or expires."
        ),
        tag="sessions",
        answers={201: ClientFacts},
        needs=AUTHENTICATED,
    ),
    Route(
        "GET",
        "/session",
        show_session,
        summary="The client of this request, and what it may do",
        description="Clients without credentials learn whether they need a login, and with which methods.",
        tag="sessions",
        answers={200: ClientFacts},
        needs=OPTIONAL,
    ),
    Route(
        "DELETE",
        "/session",
        end_session,
        summary="Log out: end the session of the cookie, and its streams",
        description="The answer is the same if the session has ended before.",
        tag="sessions",
        answers={204: Answer("The session has ended, and the cookie is removed.")},
        needs=OPTIONAL,
    ),
)
