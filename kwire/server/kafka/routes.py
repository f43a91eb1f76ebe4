"""The route of an API: its handler, its latency metric, and its codecs by version.

A connection of a client with a scope has routes of its own, whose codecs translate names. Inside, all names are full
names. So scopes cost nothing on other connections.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from kwire.handlers.shared.context import Handler
from kwire.metrics import Latency
from kwire.wire.codec import chunked_decoder, chunked_encoder, decoder, encoder
from kwire.wire.errors import TooManyElements
from kwire.wire.names import Names
from kwire.wire.types import Buffer

# A request with more elements than this is decoded, handled and answered in chunks. This many elements take a few
# milliseconds.
ELEMENTS_AT_ONCE_MAX = 1_000
# A request with a longer body is also handled in chunks, because decoding its strings takes some milliseconds. Requests
# that contain records are excepted.
BODY_AT_ONCE_BYTES_MAX = 1024 * 1024


class Route:
    """The route of one API. The codec of a version is compiled on first use."""

    __slots__ = (
        "_decoders",
        "_encoders",
        "_has_records",
        "api",
        "handle",
        "handler",
        "latency",
        "response",
        "template_cache",
    )

    def __init__(self, handler: Handler, latency: Latency) -> None:
        self.handler = handler
        self.api = handler.api
        self.handle = handler.handle
        self.template_cache = handler.template_cache
        self.response = handler.api.response
        self.latency = latency
        self._has_records = handler.has_records
        self._decoders: dict[int, Callable[..., Any]] = {}
        self._encoders: dict[int, Callable[[Any], list[Buffer]]] = {}

    def decode(self, version: int, body: Buffer) -> Any:
        """Decode a request. Raises TooManyElements if it is a large request."""
        if len(body) > BODY_AT_ONCE_BYTES_MAX:
            self._check_size(body)
        made = self._decoders.get(version)
        if made is None:
            made = self._decoders[version] = decoder(self.api.request, version)
        return made(body, ELEMENTS_AT_ONCE_MAX)

    def _check_size(self, body: Buffer) -> None:
        if not self._has_records and len(body) > BODY_AT_ONCE_BYTES_MAX:
            raise TooManyElements(f"{len(body)} bytes are decoded in chunks")

    def encode(self, version: int, answer: Any) -> list[Buffer]:
        made = self._encoders.get(version)
        if made is None:
            made = self._encoders[version] = encoder(self.response, version)
        return made(answer)

    def chunked_decode(self, version: int, body: Buffer) -> Generator[None, None, Any]:
        return chunked_decoder(self.api.request, version)(body)

    def chunked_encode(self, version: int, answer: Any) -> Generator[None, None, list[Buffer]]:
        return chunked_encoder(self.response, version)(answer)


class ScopedRoute(Route):
    """The route of one API for clients with a scope. Requests have plain names until they are decoded, and responses
    have them from when they are encoded."""

    __slots__ = ("_names",)

    def __init__(self, handler: Handler, latency: Latency, names: Names) -> None:
        super().__init__(handler, latency)
        self._names = names

    def decode(self, version: int, body: Buffer) -> Any:
        self._check_size(body)
        return decoder(self.api.request, version, is_scoped=True)(body, ELEMENTS_AT_ONCE_MAX, self._names.prefix)

    def encode(self, version: int, answer: Any) -> list[Buffer]:
        return encoder(self.response, version, is_scoped=True)(answer, self._names)

    def chunked_decode(self, version: int, body: Buffer) -> Generator[None, None, Any]:
        return chunked_decoder(self.api.request, version, is_scoped=True)(body, self._names.prefix)

    def chunked_encode(self, version: int, answer: Any) -> Generator[None, None, list[Buffer]]:
        return chunked_encoder(self.response, version, is_scoped=True)(answer, self._names)


class ScopedRoutes(dict[int, Route]):
    """The routes of one connection of a client with a scope, each created on first use."""

    def __init__(self, routes: Mapping[int, Route], names: Names) -> None:
        self._routes = routes
        self._names = names

    def __missing__(self, key: int) -> Route:
        route = self._routes[key]
        made = self[key] = ScopedRoute(route.handler, route.latency, self._names)
        return made


def routes_of(routes: Mapping[int, Route], names: Names | None) -> Mapping[int, Route]:
    """Return the routes of a connection. `names` is the translation of its client's scope, if it has one."""
    return routes if names is None else ScopedRoutes(routes, names)
