"""Runs requests of Kafka APIs that arrive as JSON on the HTTP port, as if they had arrived on a Kafka connection."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from kwire.access.audit.entries import HTTP
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.views import Views
from kwire.server.kafka.encoded_requests import RESPONSE_SECONDS_MAX, encoded_response
from kwire.server.kafka.listener import KafkaListener
from kwire.server.kafka.routes import routes_of
from kwire.server.kafka.shared import Shared
from kwire.web.kafka_requests.running import HttpClient
from kwire.wire.schema import Api
from kwire.wire.types import Buffer

# The hosts of listeners on all addresses.
ANY_HOST = ("", "0.0.0.0", "::")


class HttpPeer:
    """The connection of an HTTP client, as handlers of the Kafka port see it.

    Handlers use `mute`, `reserve` and `release` only for records, which do not arrive as JSON.
    """

    __slots__ = ("client_host", "endpoint")

    authentication = None
    is_frame_shared = False

    def __init__(self, client_host: str, endpoint: tuple[str, int]) -> None:
        self.client_host = client_host
        self.endpoint = endpoint

    def mute(self, seconds: float) -> None:
        """Do nothing: the HTTP port refuses the next request of a client above a quota."""

    def reserve(self, size_bytes: int) -> bool:
        return False

    def release(self, size_bytes: int) -> None:
        """Do nothing: nothing was reserved."""


class HttpRequests:
    """Runs requests with the rights and the scope of the HTTP client, and the quotas of its principal.

    The listeners must be open.
    """

    def __init__(self, shared: Shared, listeners: Sequence[KafkaListener]) -> None:
        self._shared = shared
        listener = listeners[0]
        shown = listener.advertised or listener.listener
        # The address of the first Kafka listener. Without a host, it is on the host that the client has connected to.
        self._host = "" if shown.host in ANY_HOST else shown.host
        self._port = shown.port or listener.port

    async def __call__(self, api: Api, version: int, body: bytes, client: HttpClient) -> list[Buffer]:
        services = self._shared.services
        views = Views(services, client.access, HTTP)
        route = routes_of(self._shared.routes, views.names)[api.key]
        quotas = services.quotas
        quota = quotas.client(client.access.principal.name, None) if quotas.is_any_client else None
        peer = HttpPeer(client.host, (self._host or client.local_host, self._port))
        context = Context(services, peer, version, None, views, quota)
        began = perf_counter()
        try:
            async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                return await encoded_response(route, context, body, self._shared.large_requests)
        finally:
            route.latency.observe(perf_counter() - began)
