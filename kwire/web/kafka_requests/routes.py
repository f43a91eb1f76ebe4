"""POST /kafka/{ApiName}: a request of a Kafka API as JSON. The handlers of the Kafka port answer it.

The body is the request with the names of `kwire/wire/messages`, the answer the response. The request is encoded as a
Kafka client would encode it, and decoded, handled and answered like one that arrived on a Kafka connection of the same
principal. So rights, scopes, quotas and the audit log are those of the Kafka port.
"""

from collections.abc import Collection
from typing import Any

from aiohttp import web

from kwire.concurrency.chunking import run_chunks
from kwire.errors import ErrorCode
from kwire.web.answers.errors import BodyTooLarge, Refusal
from kwire.web.kafka_requests.listed import REQUESTS, ListedRequest
from kwire.web.kafka_requests.reading import read_request
from kwire.web.kafka_requests.running import HttpClient
from kwire.web.kafka_requests.shapes import query_shape, request_shape, response_shape
from kwire.web.kafka_requests.writing import JSON_BYTES_MAX, MessageTooLarge, write_message
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import check_is_json, decoded, query_of, raw_body_of
from kwire.web.requests.body_receiver import declared_length
from kwire.web.requests.memory import UNCOUNTED_BYTES
from kwire.web.route import JSON, Handle, Route
from kwire.web.services import KafkaRequestServices
from kwire.wire.codec import chunked_decoder, chunked_encoder
from kwire.wire.schema import Api

# The maximum size of a request as JSON.
REQUEST_BYTES_MAX = 1024 * 1024
# The maximum size of a response as a Kafka client receives it. As JSON it is two to ten times as large.
RESPONSE_BYTES_MAX = 8 * 1024 * 1024
# The memory of a response while it is converted, for each byte of the encoded response.
MEMORY_PER_BYTE = 4

_ANY: type[Any] = Any

DESCRIPTION = (
    "The body is the request, and the answer the response of [this Kafka API]"
    "(https://kafka.apache.org/protocol#The_Messages_{name}). The status is 200 whenever the request was handled: "
    "look at the error codes in the answer. Bytes are in base64."
)


async def answer_request(services: KafkaRequestServices, request: web.Request, api: Api) -> web.Response:
    version: int = query_of(request, query_shape(api)).version  # type: ignore[attr-defined]
    message = await run_chunks(read_request(api, version, await _body_of(request)))
    body = b"".join(await run_chunks(chunked_encoder(api.request, version)(message)))
    socket_name = request.get_extra_info("sockname")
    client = HttpClient(access_of(request).access, request.remote or "", socket_name[0] if socket_name else "")
    try:
        chunks = await services.run(api, version, body, client)
    except TimeoutError:
        raise Refusal(
            f"the response of {api.name} was not ready in time; what the request changes may still be changed",
            code=ErrorCode.REQUEST_TIMED_OUT.name,
            status=503,
        ) from None
    size_bytes = sum(map(len, chunks))
    if size_bytes > RESPONSE_BYTES_MAX:
        raise _response_too_large(api, RESPONSE_BYTES_MAX)
    lease = services.port.memory.lease()
    try:
        if size_bytes > UNCOUNTED_BYTES:
            await lease.hold(min(MEMORY_PER_BYTE * size_bytes, JSON_BYTES_MAX))
        response = await run_chunks(chunked_decoder(api.response, version)(b"".join(chunks)))
        written = await run_chunks(write_message(response, version))
    except MessageTooLarge:
        raise _response_too_large(api, JSON_BYTES_MAX) from None
    finally:
        lease.release()
    return web.Response(body=written, content_type=JSON)


async def _body_of(request: web.Request) -> Any:
    """Return the decoded body. A request without a body has the defaults of all fields."""
    check_is_json(request)
    if (declared_length(request) or 0) > REQUEST_BYTES_MAX:
        raise _too_large()
    raw = await raw_body_of(request)
    if len(raw) > REQUEST_BYTES_MAX:
        raise _too_large()
    return decoded(raw or b"{}", _ANY)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(
        f"the body exceeds {REQUEST_BYTES_MAX} bytes: name fewer resources in one request", limit=REQUEST_BYTES_MAX
    )


def _response_too_large(api: Api, limit_bytes: int) -> Refusal:
    return Refusal(
        f"the response of {api.name} exceeds {limit_bytes} bytes: name fewer resources in one request. "
        "If the request changes something, the change has been made",
        code="ResponseTooLarge",
        status=413,
        limit=limit_bytes,
    )


def _handle_of(api: Api) -> Handle[KafkaRequestServices]:
    async def handle(services: KafkaRequestServices, request: web.Request) -> web.StreamResponse:
        return await answer_request(services, request, api)

    handle.__name__ = api.name
    return handle


def _route_of(listed: ListedRequest) -> Route[KafkaRequestServices]:
    api = listed.api
    return Route(
        "POST",
        f"/kafka/{api.name}",
        _handle_of(api),
        summary=listed.summary,
        description=f"{listed.description} {DESCRIPTION.format(name=api.name)}".strip(),
        tag="kafka",
        request=request_shape(api),
        query=query_shape(api),
        answers={200: response_shape(api)},
        needs=listed.needs,
        charges=listed.charges,
    )


ROUTES: tuple[Route[KafkaRequestServices], ...] = tuple(map(_route_of, REQUESTS))


def routes_for(names: Collection[str]) -> tuple[Route[KafkaRequestServices], ...]:
    """Return the routes of some APIs, in the order of all of them."""
    return tuple(_route_of(one) for one in REQUESTS if one.name in names)
