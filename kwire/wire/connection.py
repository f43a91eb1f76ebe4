"""One client connection without a socket: bytes in, requests out; answers in any order, bytes out in request order.

Kafka promises answers in the order of the requests. A request is handled at once (its ordered phase), its answer may
come later (its waiting phase): answers that are ready too early wait in a queue of bounded length.
"""

import struct
from collections import deque
from collections.abc import Mapping

from kwire.wire.errors import UnsupportedRequest, WireError
from kwire.wire.frame import FrameReader, ReceiveMemory
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.schema import Api
from kwire.wire.types import Buffer
from kwire.wire.varint import decode_uvarint

HEADER_TAGS_MAX = 64

_header = struct.Struct(">hhih").unpack_from
_answer_head = struct.Struct(">ii").pack
_flexible_answer_head = struct.Struct(">iib").pack


class Turn:
    """A place in the order of answers: the answer, framed, once it is there."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: list[Buffer] | None = None


class Request(Turn):
    """A request as it came: which API and version, from whom, and the bytes of its body (valid until `settle`).

    `body` is None for an ApiVersions above our range, which is answered as version 0 with error 35 (KIP-511).
    """

    __slots__ = ("api", "body", "client_id", "correlation_id", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, client_id: str | None, body: memoryview | None
    ) -> None:
        self.answer = None
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body


class ServerConnection:
    """`reader` cuts the bytes into frames; `open` reads one; it is answered now, or waits and is answered later."""

    __slots__ = ("_apis", "_client_id", "_client_id_bytes", "reader", "waiting")

    def __init__(self, apis: Mapping[int, Api], memory: ReceiveMemory, largest_frame_bytes: int) -> None:
        self.reader = FrameReader(memory, largest_frame_bytes)
        self._apis = apis
        # Requests handed out and not yet answered in order; its length is what a server bounds.
        self.waiting: deque[Turn] = deque()
        self._client_id_bytes = b""
        self._client_id: str | None = ""

    def open(self, frame: memoryview) -> Request:
        """The request in a frame that `reader` gave."""
        try:
            return self._parse(frame)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"a request header is cut short or garbled: {error}") from error

    def wait(self, turn: Turn) -> None:
        """The answer comes later; those of later requests wait behind it."""
        self.waiting.append(turn)

    def answer_now(self, request: Request, chunks: list[Buffer] | None) -> list[Buffer]:
        """Take the answer of the request just handed out (None: the client wants none); what may be sent at once."""
        framed = [] if chunks is None else self._frame(request, chunks)
        if not self.waiting:
            return framed
        request.answer = framed
        self.waiting.append(request)
        return []

    def answer_later(self, request: Request, chunks: list[Buffer] | None) -> list[Buffer]:
        """Take the answer of a request that was told to wait; everything that may be sent now, in request order."""
        return self.answer_framed(request, [] if chunks is None else self._frame(request, chunks))

    def answer_framed(self, turn: Turn, framed: list[Buffer]) -> list[Buffer]:
        """The same with an answer that needs no framing any more."""
        turn.answer = framed
        waiting = self.waiting
        ready: list[Buffer] = []
        while waiting and (answer := waiting[0].answer) is not None:
            ready += answer
            waiting.popleft()
        return ready

    def _parse(self, frame: memoryview) -> Request:
        key, version, correlation_id, length = _header(frame)
        api = self._apis.get(key)
        if api is None:
            raise UnsupportedRequest(f"API key {key} is not served")
        position = 10
        client_id = None
        if length >= 0:
            position += length
            raw = frame[10:position].tobytes()
            if len(raw) != length:
                raise WireError("the client id runs over the end of the request")
            if raw != self._client_id_bytes:
                self._client_id = str(raw, "utf-8")
                self._client_id_bytes = raw
            client_id = self._client_id
        if not api.first_version <= version <= api.last_version:
            if api is not API_VERSIONS:
                raise UnsupportedRequest(f"{api.name} version {version} is not served, only {api.versions}")
            return Request(api, 0, correlation_id, client_id, None)
        if version >= api.first_flexible:
            position = _skip_tags(frame, position)
        return Request(api, version, correlation_id, client_id, frame[position:])

    def _frame(self, request: Request, chunks: list[Buffer]) -> list[Buffer]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
        if request.version >= request.api.first_flexible and request.api is not API_VERSIONS:
            head = _flexible_answer_head(size + 5, request.correlation_id, 0)
        else:
            head = _answer_head(size + 4, request.correlation_id)
        return [head, *chunks] if len(chunks) > 1 else [head + chunks[0]] if chunks else [head]


def _skip_tags(frame: memoryview, position: int) -> int:
    """Header tags are for proxies; none is known to us, all are stepped over."""
    count = frame[position]
    if count == 0:
        return position + 1
    count, position = decode_uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise WireError(f"a request header claims {count} tags; allowed are {HEADER_TAGS_MAX}")
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
    if position > len(frame):
        raise WireError("header tags run over the end of the request")
    return position
