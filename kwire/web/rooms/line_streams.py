"""The open streams of lines of the HTTP port: they end when the node stops, or when the client loses its rights."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import RequestAccess


class LineStream:
    """One open stream. `until_stop` ends the task that reads it. `loss` is the right that the client has lost."""

    __slots__ = ("_access", "_revision", "_until_stop", "loss")

    def __init__(self, access: RequestAccess, until_stop: asyncio.Timeout) -> None:
        self._access = access
        # None: the rights may have changed since the request was admitted, so the first check compares them.
        self._revision: int | None = None
        self._until_stop = until_stop
        self.loss: Refusal | None = None

    def check(self, now: float) -> None:
        """End the stream if the client has lost a right that it holds. Called about once a second."""
        if self._access.revision != self._revision:
            self._revision = self._access.revision
            self.loss = self._access.loss()
            if self.loss is not None:
                self.stop(now)

    def stop(self, now: float) -> None:
        self._until_stop.reschedule(now)


class LineStreams:
    """All open streams. `on_add` is called when one was added."""

    def __init__(self, on_add: Callable[[], None] = lambda: None) -> None:
        self.members: set[LineStream] = set()
        self.on_add = on_add

    def add(self, stream: LineStream) -> None:
        self.members.add(stream)
        self.on_add()

    def discard(self, stream: LineStream) -> None:
        self.members.discard(stream)

    def stop(self, now: float) -> None:
        for stream in tuple(self.members):
            stream.stop(now)


STREAMS: web.AppKey[LineStreams] = web.AppKey("kwire.streams")
