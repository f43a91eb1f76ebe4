"""Through which every request comes: guarded, handled, and answered with JSON whatever goes wrong."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kwire.web.body_reading import release_body
from kwire.web.errors import error_answer
from kwire.web.large_answers import send_in_pieces
from kwire.web.memory import HttpMemory
from kwire.web.proxy.errors import proxy_error_answer
from kwire.web.proxy.media import is_proxy
from kwire.web.safety import Guard, cors_headers, is_preflight, is_trusted, preflight_answer


def door_of(guard: Guard, memory: HttpMemory) -> Middleware:
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

    return door
