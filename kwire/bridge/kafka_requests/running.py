"""Runs requests of Kafka APIs that arrive as JSON at a bridge."""

import asyncio

from kwire.bridge.kafka_requests.context import RequestContext, RequestServices
from kwire.bridge.kafka_requests.handlers import BRIDGE_HANDLERS
from kwire.metrics import Latency
from kwire.server.kafka.encoded_requests import RESPONSE_SECONDS_MAX, encoded_response
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.routes import Route, routes_of
from kwire.web.kafka_requests.running import HttpClient
from kwire.wire.schema import Api
from kwire.wire.types import Buffer


class BridgeRequests:
    """Runs requests with the rights and the scope of the HTTP client."""

    def __init__(self, services: RequestServices) -> None:
        self._services = services
        self._routes = {key: Route(handler, Latency()) for key, handler in BRIDGE_HANDLERS.items()}
        self._large_requests = LargeRequests()

    async def __call__(self, api: Api, version: int, body: bytes, client: HttpClient) -> list[Buffer]:
        context = RequestContext(self._services, client.access, version)
        route = routes_of(self._routes, context.names)[api.key]
        async with asyncio.timeout(RESPONSE_SECONDS_MAX):
            return await encoded_response(route, context, body, self._large_requests)
