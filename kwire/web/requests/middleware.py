"""The aiohttp middleware of the HTTP port: applies the origin policy, calls the handler and turns errors into JSON."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kwire.access.audit import HTTP, Actor, set_actor
from kwire.access.principal import ANONYMOUS
from kwire.web.answers.errors import error_answer
from kwire.web.answers.large_answers import send_in_pieces
from kwire.web.proxy.errors import proxy_error_answer
from kwire.web.proxy.media import is_proxy
from kwire.web.requests.body_receiver import release_body
from kwire.web.requests.memory import HttpMemory
from kwire.web.requests.origin_policy import OriginPolicy, cors_headers, is_preflight, is_trusted, preflight_answer


def request_middleware(policy: OriginPolicy, memory: HttpMemory) -> Middleware:
    """Return the middleware of the port. There is only one, because each middleware costs every request some
    microseconds."""

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            policy.check(request)
            # The connection's task handles one request after the other, so the actor is that of this request.
            set_actor(Actor(ANONYMOUS, request.remote or "", HTTP))
            answer = preflight_answer(request) if is_preflight(request) else await handler(request)
        except ConnectionError:
            # The client has disconnected, so this answer is not sent. aiohttp still requires a response.
            answer = web.Response(status=400)
        except Exception as error:
            answer = proxy_error_answer(error) if is_proxy(request) else error_answer(error)
        finally:
            release_body(request)
        if answer.prepared:
            return answer
        if is_trusted(request):
            answer.headers.update(cors_headers(request))
        if type(answer) is not web.Response:
            return answer
        try:
            return await send_in_pieces(request, answer, memory)
        except ConnectionError:
            return web.Response(status=400)

    return handle
