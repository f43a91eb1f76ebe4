"""The aiohttp middleware of the HTTP port: applies the origin policy, identifies the client, checks the needs of the
route, calls the handler and turns errors into JSON.

For a client with a scope it replaces the plain names in the path by full names, before it checks the needs and calls
the handler, and the full names in errors by plain ones."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.access.audit.entries import HTTP, Actor, Audit, set_actor
from kwire.access.authorizer import Authorizer
from kwire.access.principal import ANONYMOUS
from kwire.access.usage.key_usage import KeyUsage
from kwire.metrics import HttpMetrics
from kwire.streams.rooms.names import topic_of_room
from kwire.web.answers.errors import error_answer
from kwire.web.answers.large_answers import send_in_pieces
from kwire.web.needs import OPTIONAL, PUBLIC, ROOM_PARAMETER, Need
from kwire.web.proxy.errors import proxy_error_answer
from kwire.web.proxy.media import is_proxy
from kwire.web.requests.access import ACCESS, OPEN_ACCESS, PERMANENT, RequestAccess
from kwire.web.requests.authentication import Authenticator, Identity
from kwire.web.requests.body_receiver import release_body
from kwire.web.requests.memory import HttpMemory
from kwire.web.requests.origin_policy import OriginPolicy, cors_headers, is_preflight, is_trusted, preflight_answer
from kwire.web.requests.request_ids import REQUEST_ID, begin_request
from kwire.web.route import Route


class PathNeed(NamedTuple):
    """An operation on the resource that a path parameter names, or on the cluster."""

    operation: Operation
    resource_type: ResourceType
    parameter: str | None

    def name_in(self, path: Mapping[str, str]) -> str:
        """Return the name of the resource. Raises InvalidName if the path has an invalid room."""
        if self.parameter is None:
            return CLUSTER_NAME
        name = path[self.parameter]
        return topic_of_room(name) if self.parameter == ROOM_PARAMETER else name


class RouteRule(NamedTuple):
    """What the middleware checks before it calls the handler of a route."""

    is_public: bool
    # Whether clients without credentials are served, as anonymous ones.
    is_optional: bool
    is_streaming: bool
    needs: tuple[PathNeed, ...]


# The path parameters with names that belong to scopes. The id of an event begins with the name of its topic.
SCOPED_PARAMETERS = (ROOM_PARAMETER, "topic", "group", "event")

# The rule for paths and methods that do not exist: only authenticated clients learn that they do not.
UNKNOWN_ROUTE = RouteRule(is_public=False, is_optional=False, is_streaming=False, needs=())
_NOBODY = Identity(ANONYMOUS, PERMANENT)


class Guard:
    """Decides which requests reach their handlers, and sets `request[ACCESS]`.

    `authenticator` is None if authentication is off. Then all clients are anonymous.
    """

    def __init__(
        self, authorizer: Authorizer, authenticator: Authenticator | None, audit: Audit, key_usage: KeyUsage
    ) -> None:
        self._authorizer = authorizer
        self._key_usage = key_usage
        self._audit = audit
        self._authenticator = authenticator
        self._rules: dict[web.AbstractRoute, RouteRule] = {}

    def add(self, added: web.AbstractRoute, route: Route[Any]) -> None:
        """Register a route that was added to the application. Requests for other routes fail."""
        self._rules[added] = _rule_of(route)

    async def admit(self, request: web.Request) -> None:
        """Raise Unauthorized or NotAuthorized, unless the client may send this request."""
        match = request.match_info
        rule = UNKNOWN_ROUTE if match.http_exception is not None else self._rules[match.route]
        identity = _NOBODY
        if self._authenticator is not None and not rule.is_public:
            if rule.is_optional:
                identity = await self._authenticator.identify_if_given(request) or _NOBODY
            else:
                identity = await self._authenticator.identify(request, is_streaming=rule.is_streaming)
        rights = self._authorizer.access(identity.principal, request.remote or "")
        access = request[ACCESS] = RequestAccess(
            rights, identity.login, self._audit, self._key_usage.limits_of(identity.principal)
        )
        if access.scope is not None:
            for parameter in SCOPED_PARAMETERS:
                if parameter in match:
                    match[parameter] = access.full_name(match[parameter])
        for need in rule.needs:
            # A stream needs its rights for as long as it is open, and another request until its body has arrived.
            access.hold(need.operation, need.resource_type, need.name_in(match))


def guard_of(
    authorizer: Authorizer, authenticator: Authenticator | None, audit: Audit, key_usage: KeyUsage
) -> Guard | None:
    """Return the guard of a port; None if every client may do everything."""
    if authenticator is None and not authorizer.is_enabled:
        return None
    return Guard(authorizer, authenticator, audit, key_usage)


def _rule_of(route: Route[Any]) -> RouteRule:
    if route.needs is None:
        raise ValueError(f"route {route.method} {route.path} does not declare its needs")
    if route.needs == PUBLIC:
        return RouteRule(is_public=True, is_optional=False, is_streaming=route.is_streaming, needs=())
    needs = tuple(_path_need(route, need) for need in route.needs if isinstance(need, Need) and not need.is_in_handler)
    return RouteRule(is_public=False, is_optional=route.needs == OPTIONAL, is_streaming=route.is_streaming, needs=needs)


def _path_need(route: Route[Any], need: Need) -> PathNeed:
    if need.resource_type is not ResourceType.CLUSTER and f"{{{need.parameter}}}" not in route.path:
        raise ValueError(f"route {route.method} {route.path} has no path parameter {need.parameter}")
    return PathNeed(need.operation, need.resource_type, need.parameter)


def request_middleware(
    policy: OriginPolicy, memory: HttpMemory, metrics: HttpMetrics, guard: Guard | None = None
) -> Middleware:
    """Return the middleware of the port. There is only one, because each middleware costs every request some
    microseconds. Without a guard every client may do everything."""

    @web.middleware
    async def handle_and_count(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        answer = await handle(request, handler)
        metrics.of_route(request.match_info.route).observe(answer.status, time.perf_counter() - began)
        return answer

    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        request_id = begin_request(request)
        try:
            policy.check(request)
            if is_preflight(request):
                answer: web.StreamResponse = preflight_answer(request)
            else:
                if guard is None:
                    request[ACCESS] = OPEN_ACCESS
                else:
                    await guard.admit(request)
                # The connection's task handles one request after the other, so the actor is that of this request.
                set_actor(Actor(request[ACCESS].principal, request.remote or "", HTTP))
                answer = await handler(request)
        except ConnectionError:
            # The client has disconnected, so this answer is not sent. aiohttp still requires a response.
            answer = web.Response(status=400)
        except Exception as error:
            answer = proxy_error_answer(error) if is_proxy(request) else error_answer(error)
        finally:
            release_body(request)
        if answer.prepared:
            return answer
        answer.headers[REQUEST_ID] = request_id
        if is_trusted(request):
            answer.headers.update(cors_headers(request))
        if type(answer) is not web.Response:
            return answer
        if answer.status >= 400 and ACCESS in request:
            request[ACCESS].hide_in(answer)
        try:
            return await send_in_pieces(request, answer, memory)
        except ConnectionError:
            return web.Response(status=400)

    return handle_and_count
