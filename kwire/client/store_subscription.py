"""A subscription to the event store: one stream of lines, opened again behind the last event whenever it is lost.

Nothing is queued here and no task runs: the user pulls, and what was not pulled stays in the socket, then on the
server, whose log is the long queue. A user who pulls nothing for long is let go by the server, and goes on where it was
with the next pull.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import aiohttp

from kwire.client.backoff import Backoff
from kwire.client.cursor import Cursor
from kwire.client.errors import ClientClosed, ConnectionLost, Refused, Unreachable, refusal_of
from kwire.client.events import Position
from kwire.client.items import Items
from kwire.client.stored_events import StoredEvent, StoredItem, stored_event

NDJSON = "application/x-ndjson"
CONNECT_TIMEOUT_S = 10.0
# The server says something every ten seconds, unless it is told to do so more rarely.
SILENCE_S = 60.0
LINE_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024

# What asking again does not change. With every other code a subscription that had begun goes on later.
LASTING_CODES = frozenset({"TopicNotFound", "NotAnEventTopic", "InvalidName", "BadRequest", "SubscriptionFailed"})

logger = logging.getLogger("kwire.client")


class EventStream(Items[StoredEvent, StoredItem]):
    """Iterate over it (`async for item in stream`), or pull with `next` or `next_event`; one reader at a time."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        cursor: Cursor,
        place: str,
        begin: int | str | None,
        backoff: Backoff,
    ) -> None:
        """`place` is what the server calls an offset here; `begin` is where to begin if nothing was read before."""
        super().__init__(StoredEvent, cursor.position)
        self._session = session
        self._url = url
        self._cursor = cursor
        self._place = place
        self._begin = begin
        self._backoff = backoff
        self._answer: aiohttp.ClientResponse | None = None
        self._opened_at = 0.0
        # It was lost, and is not opened again at once.
        self._is_waiting = False
        # Of what came: the beginning of a line, lines that nobody has looked at, and what those meant that were.
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._lines: deque[bytes] = deque()
        self._items: deque[StoredItem] = deque()
        self._has_begun = False

    @property
    def name(self) -> str:
        return self._cursor.room

    # --- what the user does

    async def next(self, timeout_s: float | None = None) -> StoredItem:
        async with asyncio.timeout(timeout_s):
            while (item := self._taken()) is None:
                if self._end is not None:
                    raise self._end
                await self._pull()
            return item

    async def next_batch(self, count_max: int, timeout_s: float | None = None) -> list[tuple[StoredItem, Position]]:
        """At least one item, and with it what else is already here; beside each the position behind it."""
        item: StoredItem | None = await self.next(timeout_s)
        found: list[tuple[StoredItem, Position]] = []
        while item is not None:
            assert self._position is not None
            found.append((item, self._position))
            item = self._taken() if len(found) < count_max else None
        return found

    async def close(self) -> None:
        self._let_go()
        if self._end is None:
            self._end = ClientClosed(f"the subscription to {self.name} was closed")
        self._lines.clear()
        self._items.clear()

    # --- the connection

    async def open(self, timeout_s: float) -> None:
        """The first time: raises what is wrong instead of trying for ever."""
        trouble = "no answer yet"
        try:
            async with asyncio.timeout(timeout_s):
                while not self._has_begun:
                    try:
                        await self._opened()
                        await self._receive()
                        while self._lines and not self._has_begun:
                            self._look_at(self._lines.popleft())
                    except ConnectionLost as error:
                        trouble = str(error)
                        self._lost(trouble)
                    except Refused as error:
                        self._refused(error)
                        if self._end is not None:
                            raise self._end from None
        except TimeoutError:
            self._let_go()
            raise Unreachable(f"no answer to the subscription to {self.name}: {trouble}") from None
        except BaseException:
            self._let_go()
            raise
        self._position = self._position or self._cursor.position

    async def _pull(self) -> None:
        """Get something from the server, whatever that takes."""
        try:
            await self._opened()
            await self._receive()
        except ConnectionLost as error:
            self._lost(str(error))
        except Refused as error:
            self._refused(error)

    async def _opened(self) -> None:
        if self._answer is not None:
            return
        if self._is_waiting:
            self._is_waiting = False
            await asyncio.sleep(self._backoff.next_delay_s())
        answer = await self._connect()
        if self._end is not None:
            answer.close()
            raise ConnectionLost("closed meanwhile")
        self._answer = answer
        self._opened_at = time.monotonic()

    async def _connect(self) -> aiohttp.ClientResponse:
        query = self._cursor.request()
        query.pop("room")
        if "from_offset" in query:
            query["from"] = query.pop("from_offset")
        elif self._begin is not None:
            query["from"] = self._begin
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                answer = await self._session.get(
                    self._url,
                    params=query,
                    headers={"Accept": NDJSON},
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S),
                    allow_redirects=False,
                )
                if answer.status == 200:
                    return answer
                async with answer:
                    raise _refusal(answer.status, await answer.content.read(ERROR_BYTES_MAX))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ConnectionLost(f"no stream from {self._url}: {type(error).__name__}: {error}") from error

    async def _receive(self) -> None:
        if self._answer is None:
            raise ConnectionLost("closed meanwhile")
        try:
            # Who stops waiting here loses nothing: what came is still in the stream.
            data = await self._answer.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error
        if not data:
            raise ConnectionLost("the server has ended the stream")
        first, *more = data.split(b"\n")
        self._parts.append(first)
        self._parts_bytes += len(first)
        if more:
            lines = [b"".join(self._parts), *more[:-1]]
            self._parts, self._parts_bytes = [more[-1]], len(more[-1])
            # Empty ones are the server's heartbeat.
            self._lines.extend(line for line in lines if line)
        elif self._parts_bytes > LINE_BYTES_MAX:
            raise ConnectionLost(f"a line has more than {LINE_BYTES_MAX} bytes")

    def _lost(self, reason: str) -> None:
        if self._answer is not None:
            logger.info("stream of %s lost (%s), opening it again", self.name, reason)
            self._backoff.lived(time.monotonic() - self._opened_at)
        self._is_waiting = True
        self._let_go()

    def _let_go(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self._parts, self._parts_bytes = [], 0

    # --- what comes

    def _taken(self) -> StoredItem | None:
        self._understand()
        if not self._items:
            return None
        item = self._items.popleft()
        self._position = self._cursor.position
        return item

    def _understand(self) -> None:
        """Look at lines until there is an item. The cursor never runs ahead of what is handed out."""
        while self._lines and not self._items:
            self._look_at(self._lines.popleft())
        if not self._items:
            self._position = self._cursor.position or self._position

    def _look_at(self, line: bytes) -> None:
        try:
            self._take(json.loads(line))
        except (ValueError, LookupError, TypeError) as error:
            self._lines.clear()
            self._lost(f"a line that is none of kwire's: {type(error).__name__}: {error}")

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message.get("control")
        if kind is None:
            if self._cursor.take(message[self._place]):
                self._items.append(stored_event(message))
            return
        if kind == "subscribed":
            self._subscribed(message)
        elif kind == "closed":
            self._closed(message)
        elif (item := self._cursor.mark(message, self._place)) is not None:
            self._items.append(item)

    def _subscribed(self, message: Mapping[str, Any]) -> None:
        facts = {
            "epoch": message["epoch"],
            "next_offset": message[f"next_{self._place}"],
            "newest_offset": message[f"newest_{self._place}"],
        }
        answer = self._cursor.answered(facts)
        self._has_begun = True
        self._items.extend(answer.gaps)
        if answer.must_ask_again:
            self._lines.clear()
            self._let_go()

    def _closed(self, message: Mapping[str, Any]) -> None:
        self._lines.clear()
        code, reason = str(message.get("code", "Unknown")), str(message.get("reason", ""))
        if code in LASTING_CODES and code != "SubscriptionFailed":
            self._end = refusal_of({"code": code, "message": reason, "offset": message.get(self._place)})
        self._lost(f"{code}: {reason}")

    def _refused(self, error: Refused) -> None:
        self._let_go()
        gaps = self._cursor.refused(error)
        if gaps is not None:
            self._items.extend(gaps)
        elif not self._has_begun or error.code in LASTING_CODES:
            self._end = error
        else:
            self._is_waiting = True
            logger.info("stream of %s refused (%s), asking again", self.name, error)


def _refusal(status: int, body: bytes) -> Refused:
    try:
        return refusal_of(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return Refused(f"Http{status}", body[:200].decode(errors="replace"), {})
