"""Requests as frames and frames as answers, and a client that sends and receives them."""

import asyncio
import struct
from typing import Any, Self

from kwire.wire.apis import API_VERSIONS, APIS
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.schema import message_of

CLIENT_ID = b"test"
RECEIVE_TIMEOUT_S = 10.0
HOST = "127.0.0.1"


def frame(request: Any, version: int, correlation_id: int = 1, client_id: bytes = CLIENT_ID) -> bytes:
    """A request with its header and its size in front."""
    api = APIS[message_of(type(request)).key]
    header = struct.pack(">hhih", api.key, version, correlation_id, len(client_id)) + client_id
    tags = b"\x00" if version >= api.first_flexible else b""
    body = header + tags + encode_message(request, version)
    return struct.pack(">i", len(body)) + body


def split(data: bytes) -> list[bytes]:
    """The whole frames in `data`, which holds nothing else; without their sizes."""
    frames = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        assert len(data) >= 4 + size, "the data ends inside a frame"
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


def correlation_ids(data: bytes) -> list[int]:
    return [struct.unpack_from(">i", one)[0] for one in split(data)]


def parse(response: type[Any], version: int, data: bytes) -> Any:
    api = APIS[message_of(response).key]
    skipped = 5 if version >= api.first_flexible and api is not API_VERSIONS else 4
    return decode_message(response, version, data[skipped:])


class Client:
    """One connection to a real node. Requests are numbered from 1; answers are checked to come in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sent = 0
        self.received = 0
        self._expected: list[tuple[type[Any], int]] = []
        self.client_id = CLIENT_ID

    @classmethod
    async def connect(cls, port: int, **more: Any) -> Self:
        return cls(*await asyncio.open_connection(HOST, port, **more))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)

    def send(self, request: Any, version: int, *, is_answered: bool = True) -> None:
        self.sent += 1
        if is_answered:
            self._expected.append((APIS[message_of(type(request)).key].response, version))
        self.writer.write(frame(request, version, self.sent, self.client_id))

    async def receive(self) -> Any:
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        response, version = self._expected.pop(0)
        self.received += 1
        assert struct.unpack_from(">i", data)[0] == self.received
        return parse(response, version, data)

    async def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return await self.receive()

    async def ended(self) -> bytes:
        """Everything up to the end of the stream, whichever way it ends."""
        data = bytearray()
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            try:
                while part := await self.reader.read(65536):
                    data += part
            except ConnectionError:
                pass
        return bytes(data)
