"""Through which every request comes: guarded, handled, and answered with JSON whatever goes wrong."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kwire.web.errors import error_answer
from kwire.web.proxy.errors import proxy_error_answer
from kwire.web.proxy.media import is_proxy
from kwire.web.safety import Guard, cors_headers, is_preflight, is_trusted, preflight_answer


def door_of(guard: Guard) -> Middleware:
    """aiohttp's one middleware of ours: each costs every request some microseconds."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            guard.check(request)
            answer = preflight_answer(request) if is_preflight(request) else await handler(request)
        except ConnectionError:
            # The client is gone, and nobody reads this.
            answer = web.Response(status=400)
        except Exception as error:
            answer = proxy_error_answer(error) if is_proxy(request) else error_answer(error)
        if is_trusted(request) and not answer.prepared:
            answer.headers.update(cors_headers(request))
        return answer

    return door
