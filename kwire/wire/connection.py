"""A client connection without a socket: parses requests, and returns responses in request order.

Kafka guarantees responses in the order of the requests. The ordered phase of a request runs before the next request is
handled. In the waiting phase, which some requests have, the response is not known yet. A response that is ready before
the response of an earlier request waits in a queue, and the server bounds the length of this queue.
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


class PendingResponse:
    """An entry in the queue of responses. `answer` is the framed response, or None while it is not ready."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: list[Buffer] | None = None


class Request(PendingResponse):
    """A request with its parsed header. `body` holds the encoded request and is valid until `FrameReader.settle`.

    `body` is None for an unsupported version of ApiVersions, which is answered in version 0 with error 35 (KIP-511).
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
    """The protocol state of a connection.

    `reader` returns frames, `open` parses the request in a frame, `answer_now` and `answer_later` receive its response.
    """

    __slots__ = ("_apis", "_client_id", "_client_id_bytes", "reader", "waiting")

    def __init__(self, apis: Mapping[int, Api], memory: ReceiveMemory, largest_frame_bytes: int) -> None:
        self.reader = FrameReader(memory, largest_frame_bytes)
        self._apis = apis
        # Requests whose responses have not been sent, in request order. The server bounds the length.
        self.waiting: deque[PendingResponse] = deque()
        self._client_id_bytes = b""
        self._client_id: str | None = ""

    def open(self, frame: memoryview) -> Request:
        """Parse the request in a frame that `reader` returned. Raises WireError."""
        try:
            return self._parse(frame)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"the request header is truncated or malformed: {error}") from error

    def wait(self, turn: PendingResponse) -> None:
        """Add a response that is not ready to the queue. The responses of later requests are sent after it."""
        self.waiting.append(turn)

    def answer_now(self, request: Request, chunks: list[Buffer] | None) -> list[Buffer]:
        """Receive the response of the current request (None: no response); return the bytes that can be sent now."""
        framed = [] if chunks is None else self._frame(request, chunks)
        if not self.waiting:
            return framed
        request.answer = framed
        self.waiting.append(request)
        return []

    def answer_later(self, request: Request, chunks: list[Buffer] | None) -> list[Buffer]:
        """Receive the response of a queued request; return all responses that can be sent now, in request order."""
        return self.answer_framed(request, [] if chunks is None else self._frame(request, chunks))

    def answer_framed(self, turn: PendingResponse, framed: list[Buffer]) -> list[Buffer]:
        """Do the same as `answer_later` for a response that is already framed."""
        turn.answer = framed
        waiting = self.waiting
        ready: list[Buffer] = []
        while waiting and (answer := waiting[0].answer) is not None:
            ready += answer
            waiting.popleft()
        return ready

    def waits_only_for(self, api: Api) -> bool:
        """Return whether all responses in the queue are unfinished ones of this API. An empty queue qualifies."""
        return all(isinstance(one, Request) and one.api is api and one.answer is None for one in self.waiting)

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
                raise WireError("the client id exceeds the end of the request")
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
    """Return the position after the tagged fields of the header, which are ignored because none are defined."""
    count = frame[position]
    if count == 0:
        return position + 1
    count, position = decode_uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise WireError(f"the request header has {count} tags; at most {HEADER_TAGS_MAX} are allowed")
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
    if position > len(frame):
        raise WireError("the header tags exceed the end of the request")
    return position
