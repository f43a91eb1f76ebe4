"""Answers an encoded request of a Kafka API outside of a Kafka connection, with its decoded form handled by a route."""

from collections.abc import Awaitable
from typing import Any, Final

from kwire.concurrency.chunking import run_chunks
from kwire.handlers.shared.client_context import ClientContext
from kwire.handlers.shared.context import BlockingContinuation
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.routes import Route
from kwire.wire.errors import TooManyElements
from kwire.wire.types import Buffer

# The maximum time until the response is ready. Kafka clients wait as long by default (`request.timeout.ms`).
RESPONSE_SECONDS_MAX: Final = 30.0


async def encoded_response(
    route: Route, context: ClientContext, body: bytes, large_requests: LargeRequests
) -> list[Buffer]:
    """Decode the request, handle it, and encode the response, in chunks if it is a large request."""
    try:
        request = route.decode(context.api_version, body)
    except TooManyElements:
        async with large_requests:
            request = await run_chunks(route.chunked_decode(context.api_version, body))
            answer = await _answer(route, context, request)
            return await run_chunks(route.chunked_encode(context.api_version, answer))
    return route.encode(context.api_version, await _answer(route, context, request))


async def _answer(route: Route, context: ClientContext, request: Any) -> Any:
    answer = route.handle(context, request)
    if type(answer) is BlockingContinuation:
        answer = await answer.rest
    return await answer if isinstance(answer, Awaitable) else answer
