"""A receiver of webhooks on a real port, which behaves as badly as it is told to, and remembers all that it got."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kwire.testing.ports import unused_port

HOST = "127.0.0.1"
WAIT_S = 20.0
CERTIFICATE = Path(__file__).parent / "tls" / "receiver.pem"
# The name that the certificate is for.
CERTIFIED_NAME = "receiver.example"
BODY_BYTES_MAX = 16 * 1024 * 1024


class Got(NamedTuple):
    """One request. Names of headers are in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Reply(NamedTuple):
    """What is answered. `wait` is waited for first; silent: there is no answer; cut: the connection ends instead."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    wait: asyncio.Event | None = None
    is_silent: bool = False
    is_cut: bool = False
    # More than what is sent: the rest never comes.
    content_length: int | None = None


class Receiver:
    """`reply` decides about each request; it can be replaced at any time. `stop` and `start` are a restart."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.reply: Callable[[Got], Reply] = lambda got: Reply()
        self.requests: list[Got] = []
        self.connection_count = 0
        self.port = unused_port()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    def answer(self, *replies: Reply | int) -> None:
        """These to the next requests, in turn; 200 to all that follow."""
        left = [Reply(one) if isinstance(one, int) else one for one in replies]
        self.reply = lambda got: left.pop(0) if left else Reply()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._begin, HOST, self.port, ssl=self._tls, reuse_address=True, limit=BODY_BYTES_MAX
        )

    async def stop(self) -> None:
        """Gone as after a kill: connections end in the middle."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def received(self, count: int) -> list[Got]:
        """All requests so far, once there are so many."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)
            return list(self.requests)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (got := await _request(reader)) is not None:
                reply = self.reply(got)
                async with self._changed:
                    self.requests.append(got)
                    self._changed.notify_all()
                if reply.wait is not None:
                    await reply.wait.wait()
                if reply.is_silent:
                    await reader.read()
                    return
                if reply.is_cut:
                    return
                _write(writer, reply)
                await writer.drain()
                if reply.content_length is not None:
                    await reader.read()
                    return
        except (OSError, asyncio.IncompleteReadError):
            # Who sends webhooks has given up.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> Got | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(first.split(" ")[1], headers, body)


def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    length = len(reply.body) if reply.content_length is None else reply.content_length
    headers = {"Content-Length": str(length), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} As told", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body)


def receiver_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def trusting_tls() -> ssl.SSLContext:
    """Of somebody who trusts the receiver's certificate, and no other."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver(tls)
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
