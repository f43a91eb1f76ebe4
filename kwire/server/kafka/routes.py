"""The way of one API's requests through the server: its handler, its latency, and its codecs by version."""

from collections.abc import Callable
from typing import Any

from kwire.handlers.context import Handler
from kwire.metrics import Latency
from kwire.wire.codec import ChunkedDecode, ChunkedEncode, chunked_decoder, chunked_encoder, decoder, encoder
from kwire.wire.errors import TooManyElements
from kwire.wire.types import Buffer

# A request with more elements than these is decoded, handled and answered in chunks: a few milliseconds of work.
ELEMENTS_AT_ONCE_MAX = 1_000
# So is one with a longer body, unless that consists of records: to make strings of it takes some milliseconds.
BODY_AT_ONCE_BYTES_MAX = 1024 * 1024


class Route:
    """Codecs are made when first needed."""

    __slots__ = ("_decoders", "_encoders", "_has_records", "api", "handle", "latency", "response", "shortcut")

    def __init__(self, handler: Handler, latency: Latency) -> None:
        self.api = handler.api
        self.handle = handler.handle
        self.shortcut = handler.shortcut
        self.response = handler.api.response
        self.latency = latency
        self._has_records = handler.has_records
        self._decoders: dict[int, Callable[..., Any]] = {}
        self._encoders: dict[int, Callable[[Any], list[Buffer]]] = {}

    def decode(self, version: int, body: Buffer) -> Any:
        """The request, unless it is large: TooManyElements."""
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
