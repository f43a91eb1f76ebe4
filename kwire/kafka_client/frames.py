"""Requests and responses of a client as bytes, and the versions that a server and this client both have."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kwire.errors import ErrorCode
from kwire.kafka_client.errors import NotSupported, Unreachable
from kwire.wire.codec import decoder, encoder
from kwire.wire.messages.api_versions import API_VERSIONS, ApiVersionsResponse
from kwire.wire.schema import Api
from kwire.wire.types import Buffer

CLIENT_ID: Final = b"kwire"
# Servers that do not know this version answer in version 0 with error 35 (KIP-511).
API_VERSIONS_VERSION: Final = 3
# Bound of one response. A fetched batch may be as large as the topic's max.message.bytes, whatever the request says.
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
# Responses up to this size are received into a buffer that is reused.
_SCRATCH_BYTES: Final = 64 * 1024

_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ihhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_HEAD_AFTER_SIZE_BYTES: Final = _HEAD.size - _SIZE.size + len(CLIENT_ID)


def encode_request(api: Api, version: int, correlation_id: int, message: Any) -> list[Buffer]:
    """Return the parts of a request, with its size. Large records stay views."""
    is_flexible = version >= api.first_flexible
    parts = encoder(type(message), version)(message)
    size = _HEAD_AFTER_SIZE_BYTES + is_flexible + sum(map(len, parts))
    head = _HEAD.pack(size, api.key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return [head + b"\x00" if is_flexible else head, *parts]


def correlation_id_of(response: Buffer) -> int:
    """Return the number of the request that a response answers."""
    number: int = _CORRELATION_ID.unpack_from(response)[0]
    return number


def decode_response(api: Api, version: int, response: memoryview) -> Any:
    """Decode a response without its size. Raises WireError."""
    if api is API_VERSIONS:
        # Its header has no tagged fields, because a client must be able to read it before it knows the versions.
        start = _CORRELATION_ID.size
        # A server of another protocol may send less than an error code.
        if int.from_bytes(response[start : start + 2], signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    else:
        # The header of a flexible response ends with the number of tagged fields, which is 0.
        start = _CORRELATION_ID.size + (version >= api.first_flexible)
    return decoder(api.response, version)(response[start:])


class Versions:
    """The versions of the APIs of one server."""

    __slots__ = ("_address", "_best", "_offered")

    def __init__(self, address: str, offered: Mapping[int, tuple[int, int]]) -> None:
        self._address = address
        self._offered = offered
        self._best: dict[tuple[int, int | None], int] = {}

    @classmethod
    def of(cls, address: str, response: ApiVersionsResponse) -> "Versions":
        return cls(address, {one.api_key: (one.min_version, one.max_version) for one in response.api_keys})

    def has(self, api: Api, version: int = 0) -> bool:
        """Whether the server and this client both have an API in this version or a later one."""
        first, last = self._offered.get(api.key, (0, -1))
        return max(first, api.first_version, version) <= min(last, api.last_version)

    def best(self, api: Api, version_max: int | None = None) -> int:
        """Return the highest version that both sides have. Raises NotSupported."""
        key = api.key, version_max
        best = self._best.get(key)
        if best is None:
            first, last = self._offered.get(api.key, (0, -1))
            best = min(last, api.last_version if version_max is None else min(version_max, api.last_version))
            if best < max(first, api.first_version):
                offered = f"it has the versions {first} to {last}" if last >= 0 else "it does not have this API"
                raise NotSupported(f"{self._address}: {api.name} needs version {api.versions} or later; {offered}")
            self._best[key] = best
        return best


class ResponseReader:
    """Divides the bytes of a connection into responses. Each response has memory of its own.

    For each read: get `buffer`, fill it, and iterate over `received`.
    """

    __slots__ = ("_end", "_frame", "_scratch")

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        # The memory of an incomplete response that is larger than the scratch buffer; else None.
        self._frame: memoryview | None = None
        self._end = 0

    def buffer(self) -> memoryview:
        return (self._scratch if self._frame is None else self._frame)[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yield the complete responses, without their sizes. Raises Unreachable if the bytes are not responses."""
        self._end += count
        if self._frame is not None:
            if self._end == len(self._frame):
                frame, self._frame, self._end = self._frame, None, 0
                yield frame
            return
        data, start, end = self._scratch, 0, self._end
        while end - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, start)
            if not _CORRELATION_ID.size <= size <= RESPONSE_BYTES_MAX:
                raise Unreachable(f"a frame of {size} bytes is not a response of a Kafka server; check the port")
            first = start + _SIZE.size
            stop = first + size
            if stop > end:
                if size > _SCRATCH_BYTES - _SIZE.size:
                    frame = memoryview(bytearray(size))
                    self._end = end - first
                    frame[: self._end] = data[first:end]
                    self._frame = frame
                    return
                break
            yield memoryview(bytes(data[first:stop]))
            start = stop
        if start:
            kept = end - start
            # Source and target may overlap, which is allowed in an assignment to a slice of a memoryview.
            data[:kept] = data[start:end]
            self._end = kept
