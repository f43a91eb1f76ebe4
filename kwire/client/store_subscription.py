"""A subscription to the event store, received as an HTTP stream of JSON lines.

After a lost connection, the client opens the stream again and continues after the last event. The stream has no queue
and no background task: it receives lines only when the caller requests an item. Until then, lines stay in the socket
buffers. When the buffers are full, the lines stay on the server. If the caller requests no item for a long time, the
server closes the stream, and the caller's next request opens it again.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from kwire.client.backoff import Backoff
from kwire.client.cursor import Cursor
from kwire.client.errors import ClientClosed, ClientError, ConnectionLost, Refused, Unreachable, refusal_of
from kwire.client.events import Position, StoredEvent, StoredItem, stored_event
from kwire.client.item_iterator import ItemIterator

NDJSON = "application/x-ndjson"
CONNECT_TIMEOUT_S = 10.0
# If nothing arrives for this time, the client treats the connection as lost. The server sends a heartbeat every ten
# seconds, unless its configuration sets another interval.
SILENCE_S = 60.0
LINE_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024

# A retry after one of these errors would fail again. After any other error, a subscription that has started retries.
PERMANENT_CODES = frozenset(
    {
        "TopicNotFound",
        "NotAnEventTopic",
        "InvalidName",
        "BadRequest",
        "SubscriptionFailed",
        "Forbidden",
        "Unauthorized",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)

logger = logging.getLogger("kwire.client")


class EventStream(ItemIterator[StoredEvent, StoredItem]):
    """A subscription to the event store: iterate over it (`async for event in stream`), or call `next_event`.

    Only one task may read from the stream at a time.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        cursor: Cursor,
        offset_name: str,
        begin: int | str | None,
        backoff: Backoff,
        timeout_s: float,
    ) -> None:
        """`offset_name` is the name of the offset field in messages: "position" or "version".

        `begin` is the start that the caller requested. It is used while `cursor` has no position. `timeout_s` limits
        the time to open the stream for the first time.
        """
        super().__init__(StoredEvent)
        self._position = cursor.position
        self._end: ClientError | None = None
        self._session = session
        self._url = url
        self._cursor = cursor
        self._offset_name = offset_name
        self._begin = begin
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: aiohttp.ClientResponse | None = None
        self._opened_at = 0.0
        # True after the stream was lost: the client must wait before it opens the stream again.
        self._must_wait = False
        # Received data in three stages: parts of an incomplete line, complete unparsed lines, items of parsed lines.
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._lines: deque[bytes] = deque()
        self._items: deque[StoredItem] = deque()
        self._has_started = False

    @property
    def name(self) -> str:
        return self._cursor.room

    @property
    def position(self) -> Position | None:
        return self._position

    @property
    def is_over(self) -> bool:
        return self._end is not None

    async def close(self) -> None:
        self._disconnect()
        if self._end is None:
            self._end = ClientClosed(f"the subscription to {self.name} was closed")
        self._lines.clear()
        self._items.clear()

    # --- the connection

    async def _ensure_started(self) -> None:
        self._check_end()
        if not self._has_started:
            await self._start()

    async def _start(self) -> None:
        """Open the stream for the first time. Retry for at most `timeout_s`, then raise an error."""
        failure = "no answer yet"
        try:
            async with asyncio.timeout(self._timeout_s):
                while not self._has_started:
                    try:
                        await self._ensure_open()
                        await self._receive()
                        while self._lines and not self._has_started:
                            self._parse_line(self._lines.popleft())
                    except ConnectionLost as error:
                        failure = str(error)
                        self._lost(failure)
                    except Refused as error:
                        self._refused(error)
                    self._check_end()
        except TimeoutError:
            self._disconnect()
            raise Unreachable(f"{self.name}: the server did not answer the subscription in time: {failure}") from None
        except BaseException:
            self._disconnect()
            raise
        self._position = self._position or self._cursor.position

    async def _wait(self) -> None:
        """Open the stream if it is not open, and receive data from the server."""
        self._check_end()
        try:
            await self._ensure_open()
            await self._receive()
        except ConnectionLost as error:
            self._lost(str(error))
        except Refused as error:
            self._refused(error)

    def _check_end(self) -> None:
        if self._end is not None:
            raise self._end

    async def _ensure_open(self) -> None:
        if self._answer is not None:
            return
        if self._must_wait:
            self._must_wait = False
            await asyncio.sleep(self._backoff.next_delay_s())
        self._loop = asyncio.get_running_loop()
        answer = await self._connect()
        if self._end is not None:
            answer.close()
            raise ConnectionLost("the subscription was closed")
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
            raise ConnectionLost(f"cannot open a stream from {self._url}: {type(error).__name__}: {error}") from error

    async def _receive(self) -> None:
        if self._answer is None:
            raise ConnectionLost("the subscription was closed")
        try:
            # A cancelled call loses no data, because received data stays in aiohttp's buffer.
            data = await self._answer.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error
        if not data:
            raise ConnectionLost("the server closed the stream")
        first, *more = data.split(b"\n")
        self._parts.append(first)
        self._parts_bytes += len(first)
        if more:
            lines = [b"".join(self._parts), *more[:-1]]
            self._parts, self._parts_bytes = [more[-1]], len(more[-1])
            # The server sends empty lines as heartbeats.
            self._lines.extend(line for line in lines if line)
        elif self._parts_bytes > LINE_BYTES_MAX:
            raise ConnectionLost(f"a line is longer than the maximum of {LINE_BYTES_MAX} bytes")

    def _lost(self, reason: str) -> None:
        if self._answer is not None:
            logger.info("stream of %s lost (%s), reconnecting", self.name, reason)
            self._backoff.connection_ended(time.monotonic() - self._opened_at)
        self._must_wait = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self._parts, self._parts_bytes = [], 0

    def __del__(self) -> None:
        answer, loop = getattr(self, "_answer", None), getattr(self, "_loop", None)
        if answer is not None and loop is not None:
            with suppress(RuntimeError):  # the event loop is closed, and the connection with it
                loop.call_soon_threadsafe(answer.close)

    # --- received lines

    def _take(self) -> StoredItem | None:
        self._parse_lines()
        if not self._items:
            return None
        item = self._items.popleft()
        self._position = self._cursor.position
        return item

    def _parse_lines(self) -> None:
        """Parse lines until one of them yields an item.

        Further lines stay unparsed, so that the cursor's position is never beyond the yielded items.
        """
        while self._lines and not self._items:
            self._parse_line(self._lines.popleft())
        if not self._items:
            self._position = self._cursor.position or self._position

    def _parse_line(self, line: bytes) -> None:
        try:
            self._take_message(json.loads(line))
        except (ValueError, LookupError, TypeError) as error:
            self._lines.clear()
            self._lost(f"the server sent an invalid line: {type(error).__name__}: {error}")

    def _take_message(self, message: Mapping[str, Any]) -> None:
        kind = message.get("control")
        if kind is None:
            if self._cursor.take(message[self._offset_name]):
                self._items.append(stored_event(message))
            return
        if kind == "subscribed":
            self._subscribed(message)
        elif kind == "closed":
            self._closed(message)
        elif (item := self._cursor.control(message, self._offset_name)) is not None:
            self._items.append(item)

    def _subscribed(self, message: Mapping[str, Any]) -> None:
        facts = {
            "epoch": message["epoch"],
            "next_offset": message[f"next_{self._offset_name}"],
            "newest_offset": message[f"newest_{self._offset_name}"],
        }
        outcome = self._cursor.subscribed(facts)
        self._has_started = True
        self._items.extend(outcome.gaps)
        if outcome.must_resubscribe:
            self._lines.clear()
            self._disconnect()

    def _closed(self, message: Mapping[str, Any]) -> None:
        self._lines.clear()
        code, reason = str(message.get("code", "Unknown")), str(message.get("reason", ""))
        if code in PERMANENT_CODES and code != "SubscriptionFailed":
            self._end = refusal_of({"code": code, "message": reason, "offset": message.get(self._offset_name)})
            self._disconnect()
        else:
            self._lost(f"{code}: {reason}")

    def _refused(self, error: Refused) -> None:
        self._disconnect()
        gaps = self._cursor.refused(error)
        if gaps is not None:
            self._items.extend(gaps)
        elif not self._has_started or error.code in PERMANENT_CODES:
            self._end = error
        else:
            self._must_wait = True
            logger.info("stream of %s refused (%s), retrying", self.name, error)


def _refusal(status: int, body: bytes) -> Refused:
    try:
        return refusal_of(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return Refused(f"Http{status}", body[:200].decode(errors="replace"), {})
