"""A TCP proxy that a test can cut: what goes wrong between a client and a server that are both well."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK_BYTES = 64 * 1024


class CuttingProxy:
    """`is_down`: connections are accepted and ended at once. `delay_s`: each chunk of a connection waits."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_down = False
        self._silent: set[asyncio.StreamWriter] = set()
        self.connects = 0
        self.delay_s = 0.0
        self._cut_at: dict[bool, int] = {}
        self.url = ""

    def cut(self) -> None:
        """Reset every connection, in the middle of whatever is on its way."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut_within(self, size: int, *, of_answers: bool) -> None:
        """Reset a connection in the middle of the next chunk of requests, or of answers, that has more bytes."""
        self._cut_at[of_answers] = size

    @property
    def is_to_cut(self) -> bool:
        """Whether a cut of `cut_within` has not happened yet."""
        return bool(self._cut_at)

    def silence(self) -> None:
        """The connections there are stay open and carry nothing any more, as when a router has forgotten them."""
        self._silent |= self._writers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connects += 1
        if self.is_down:
            writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to_writer}
        for source, sink, is_answers in ((reader, to_writer, False), (to_reader, writer, True)):
            task = asyncio.create_task(self._copy(source, sink, is_answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answers: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if len(data) > self._cut_at.get(is_answers, len(data)):
                    sink.write(data[: self._cut_at.pop(is_answers)])
                    await sink.drain()
                    break
                if sink not in self._silent:
                    sink.write(data)
                    await sink.drain()
        sink.close()
        self._writers.discard(sink)

    async def close(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cutting_proxy(host: str, port: int, own_port: int = 0) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy((host, port))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", own_port)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
