"""The route of an API: its handler, its latency metric, and its codecs by version."""

from collections.abc import Callable
from typing import Any

from kwire.handlers.shared.context import Handler
from kwire.metrics import Latency
from kwire.wire.codec import ChunkedDecode, ChunkedEncode, chunked_decoder, chunked_encoder, decoder, encoder
from kwire.wire.errors import TooManyElements
from kwire.wire.types import Buffer

# A request with more elements than this is decoded, handled and answered in chunks. This many elements take a few
# milliseconds.
ELEMENTS_AT_ONCE_MAX = 1_000
# A request with a longer body is also handled in chunks, because decoding its strings takes some milliseconds. Requests
# that contain records are excepted.
BODY_AT_ONCE_BYTES_MAX = 1024 * 1024


class Route:
    """The route of one API. The codec of a version is compiled on first use."""

    __slots__ = ("_decoders", "_encoders", "_has_records", "api", "handle", "latency", "response", "template_cache")

    def __init__(self, handler: Handler, latency: Latency) -> None:
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
        if len(body) > BODY_AT_ONCE_BYTES_MAX and not self._has_records:
            raise TooManyElements(f"{len(body)} bytes are decoded in chunks")
        made = self._decoders.get(version)
        if made is None:
            made = self._decoders[version] = decoder(self.api.request, version)
        return made(body, ELEMENTS_AT_ONCE_MAX)

    def encode(self, version: int, answer: Any) -> list[Buffer]:
        made = self._encoders.get(version)
        if made is None:
            made = self._encoders[version] = encoder(self.response, version)
        return made(answer)

    def chunked_decode(self, version: int) -> ChunkedDecode:
        return chunked_decoder(self.api.request, version)

    def chunked_encode(self, version: int) -> ChunkedEncode:
        return chunked_encoder(self.response, version)
