"""A WebSocket connection to the server, for commands and subscriptions to rooms. It reconnects after a failure.

One task connects and reads frames. It processes the response to a subscribe request before it reads the next frame,
because the events of the subscription follow immediately after that response.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import aiohttp

from kwire.client.backoff import Backoff
from kwire.client.errors import (
    AnswerTimeout,
    ClientClosed,
    ClientError,
    ConnectionLost,
    PublishUncertain,
    Refused,
    TooLongForSocket,
    Unreachable,
    refusal_of,
)
from kwire.client.json_text import json_text
from kwire.client.subscription import ItemQueue

ROOMS_MAX = 1_000
UNANSWERED_MAX = 1_000
FRAME_BYTES_MAX = 64 * 1024 * 1024
# Longer commands are sent over HTTP. On the WebSocket they would delay all later commands, and the server may close the
# connection because of their size.
TEXT_LENGTH_MAX = 256 * 1024
CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
# The interval between pings. The pong must arrive within half of this time.
HEARTBEAT_S = 15.0
# The maximum time for which the full queue of one subscription may delay the other rooms of the connection. After this
# time the connection unsubscribes from the room with the full queue.
STALL_S = 0.2

# A retry after one of these errors would fail again. After any other error, a subscription that has started retries.
PERMANENT_CODES = frozenset(
    {
        "RoomNotFound",
        "InvalidName",
        "TopicHasPartitions",
        "BadRequest",
        "InvalidCommand",
        "UnknownCommand",
        "Forbidden",
        "Unauthorized",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)

AnswerHandler: TypeAlias = Callable[[Mapping[str, Any] | ClientError], None]

logger = logging.getLogger("kwire.client")


class WebSocketConnection:
    """A WebSocket that reconnects after a failure. It carries commands and at most ROOMS_MAX subscriptions."""

    def __init__(self, session: aiohttp.ClientSession, url: str, backoff: Backoff) -> None:
        self._session = session
        self._url = url
        self._backoff = backoff
        self._numbers = itertools.count(1)
        self._unanswered: dict[int, AnswerHandler] = {}
        self._slots = asyncio.Semaphore(UNANSWERED_MAX)
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._is_open = asyncio.Event()
        self._is_wanted = asyncio.Event()
        self._waiting_count = 0
        self._failure: Exception | None = None
        # Tasks that wait before they subscribe to a room again.
        self._resubscribe_tasks: dict[ItemQueue, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.rooms: dict[str, ItemQueue] = {}
        self._task = asyncio.create_task(self._run(), name="kwire client websocket")

    @property
    def failure_text(self) -> str:
        """The error that ended the last connection or the last attempt to connect, as text."""
        return _error_text(self._failure)

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for task in self._tasks:
            task.cancel()
        for queue in list(self.rooms.values()):
            queue.end(ClientClosed("the client was closed"))
        self.rooms.clear()

    # Commands

    async def command(self, name: str, payload: Mapping[str, Any], timeout_s: float, *, is_write: bool) -> Any:
        """Send a command and return its result. After a lost connection, a read is sent again, but a write is not."""
        deadline = time.monotonic() + timeout_s
        while True:
            await self._ensure_open(deadline)
            try:
                return await self._request(name, payload, deadline, is_write)
            except ConnectionLost:
                if is_write or time.monotonic() >= deadline:
                    raise

    async def _ensure_open(self, deadline: float) -> None:
        self._waiting_count += 1
        self._is_wanted.set()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._is_open.wait()
        except TimeoutError:
            raise Unreachable(f"no connection to {self._url}: {self.failure_text}") from self._failure
        finally:
            self._waiting_count -= 1

    async def _request(self, name: str, payload: Mapping[str, Any], deadline: float, is_write: bool) -> Any:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._slots.acquire()
        except TimeoutError:
            raise Unreachable(f"{name} was not sent: {UNANSWERED_MAX} earlier commands are unanswered") from None
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(frame: Mapping[str, Any] | ClientError) -> None:
            if future.done():
                return
            if isinstance(frame, ClientError):
                future.set_exception(frame)
            elif "error" in frame:
                future.set_exception(refusal_of(frame["error"]))
            else:
                future.set_result(frame.get("result"))

        number = next(self._numbers)
        try:
            # The timeout includes sending, because sending blocks while the server does not read.
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._send(name, payload, answer, number)
                return await future
        except TimeoutError:
            raise AnswerTimeout(f"the server did not answer {name} in time") from None
        except ConnectionLost as lost:
            raise (PublishUncertain(str(lost)) if is_write else lost) from None
        finally:
            self._unanswered.pop(number, None)
            self._slots.release()

    async def _send(
        self, name: str, payload: Mapping[str, Any], answer: AnswerHandler, number: int | None = None
    ) -> None:
        """Send a command. TooLongForSocket and InvalidEvent are raised before anything is sent."""
        number = next(self._numbers) if number is None else number
        text = json_text({"request_id": number, "command": name, "payload": payload})
        if len(text) > TEXT_LENGTH_MAX:
            raise TooLongForSocket
        self._unanswered[number] = answer
        socket = self._socket
        try:
            if socket is None:
                raise ConnectionResetError("not connected")
            await socket.send_str(text)
        except asyncio.CancelledError:
            # While the server reads too slowly, all senders on an aiohttp (3.14) socket wait for the same future. So
            # the cancellation of one sender also raises CancelledError in the others. Their messages are already
            # written, so senders that were not cancelled themselves ignore the error.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        except (aiohttp.ClientError, ConnectionError, RuntimeError) as error:
            self._unanswered.pop(number, None)
            answer(ConnectionLost(_error_text(error)))

    # Rooms

    async def add(self, queue: ItemQueue) -> None:
        assert queue.room not in self.rooms
        self.rooms[queue.room] = queue
        self._is_wanted.set()
        if self._is_open.is_set():
            await self._subscribe(queue)

    async def reattach(self, queue: ItemQueue) -> None:
        queue.is_paused = False
        if self._is_open.is_set():
            await self._subscribe(queue)

    def leave_soon(self, queue: ItemQueue) -> None:
        """Unsubscribe from the room in a task."""
        queue.end(ClientClosed("the subscription was dropped"))
        self._keep(asyncio.create_task(self.leave(queue)))

    async def leave(self, queue: ItemQueue) -> None:
        """Unsubscribe from the room. The subscription may have ended already."""
        if self.rooms.get(queue.room) is not queue:
            return
        del self.rooms[queue.room]
        task = self._resubscribe_tasks.pop(queue, None)
        if task is not None:
            task.cancel()
        if self._is_open.is_set():
            await self._send("stream.unsubscribe", {"room": queue.room}, lambda _: None)

    async def _subscribe(self, queue: ItemQueue) -> None:
        def answer(frame: Mapping[str, Any] | ClientError) -> None:
            if queue.is_over or isinstance(frame, ClientError):
                # The subscription was closed, or the connection was lost. After a reconnect, `_serve` subscribes again.
                return
            if "error" in frame:
                self._refused(queue, refusal_of(frame["error"]))
            elif queue.subscribed(frame["result"]):
                self._resubscribe_later(queue, 0.0, unsubscribe_first=True)

        await self._send("stream.subscribe", queue.request(), answer)

    def _refused(self, queue: ItemQueue, error: Refused) -> None:
        if queue.refused(error):
            self._resubscribe_later(queue, 0.0)
        elif queue.has_started and error.code not in PERMANENT_CODES:
            self._resubscribe_later(queue, self._backoff.next_delay_s())
        else:
            self._end(queue, error)

    def _end(self, queue: ItemQueue, error: ClientError) -> None:
        self.rooms.pop(queue.room, None)
        queue.end(error)

    def _resubscribe_later(self, queue: ItemQueue, delay_s: float, unsubscribe_first: bool = False) -> None:
        """Start a task that subscribes again after a delay. If the subscription already has such a task, do nothing."""

        async def resubscribe() -> None:
            await asyncio.sleep(delay_s)
            del self._resubscribe_tasks[queue]
            if self._is_open.is_set() and not queue.is_over:
                if unsubscribe_first:
                    await self._send("stream.unsubscribe", {"room": queue.room}, lambda _: None)
                await self._subscribe(queue)

        if queue not in self._resubscribe_tasks:
            task = self._resubscribe_tasks[queue] = asyncio.create_task(resubscribe())
            self._keep(task)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        """Hold a task until it ends: the event loop refers to it only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The connection

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    socket = await self._session.ws_connect(
                        self._url, heartbeat=HEARTBEAT_S, max_msg_size=FRAME_BYTES_MAX, autoclose=True
                    )
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._failure = error
                await asyncio.sleep(self._backoff.next_delay_s())
                continue
            opened_at = time.monotonic()
            reason = "closed by the client"
            try:
                await self._serve(socket)
                reason = _close_text(socket)
            except (ValueError, LookupError, TypeError) as error:
                reason = f"the server sent an invalid frame: {_error_text(error)}"
                logger.warning("connection to %s: %s", self._url, reason)
            finally:
                self._lost(reason)
                # The timeout is needed because the closing handshake blocks while the server does not read.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await socket.close()
            self._backoff.connection_ended(time.monotonic() - opened_at)
            if self.rooms or self._waiting_count:
                logger.info("connection to %s lost (%s), reconnecting", self._url, self._failure)
                await asyncio.sleep(self._backoff.next_delay_s())
            else:
                self._is_wanted.clear()

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        # From here on, `add` subscribes new subscriptions. The loop below subscribes the existing ones.
        self._is_open.set()
        for queue in [each for each in self.rooms.values() if not each.is_paused]:
            if not queue.is_over:
                await self._subscribe(queue)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await self._received(message.data)

    def _lost(self, reason: str) -> None:
        self._failure = ConnectionLost(reason)
        self._socket = None
        self._is_open.clear()
        for task in self._resubscribe_tasks.values():
            task.cancel()
        self._resubscribe_tasks.clear()
        for queue in self.rooms.values():
            queue.is_attached = False
        unanswered, self._unanswered = self._unanswered, {}
        for answer in unanswered.values():
            answer(ConnectionLost(f"the connection was lost before the answer: {reason}"))

    async def _received(self, text: str) -> None:
        frame = json.loads(text)
        if "control" in frame:
            queue = self.rooms.get(frame.get("room", ""))
            if queue is None:
                return
            if frame["control"] == "closed":
                self._closed_by_server(queue, frame)
            else:
                queue.control(frame)
        elif "offset" in frame:
            queue = self.rooms.get(frame["room"])
            if queue is None:
                return
            queue.event(frame, len(text))
        else:
            answer = self._unanswered.pop(frame.get("request_id"), None)
            if answer is not None:
                answer(frame)
            return
        if not queue.has_space and queue.is_attached:
            await self._wait_for_space(queue)

    async def _wait_for_space(self, queue: ItemQueue) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                await queue.wait_for_space()
        except TimeoutError:
            queue.is_attached, queue.is_paused = False, True
            await self._send("stream.unsubscribe", {"room": queue.room}, lambda _: None)

    def _closed_by_server(self, queue: ItemQueue, frame: Mapping[str, Any]) -> None:
        if not queue.is_attached:
            return
        queue.is_attached = False
        code, reason = str(frame.get("code", "Unknown")), str(frame.get("reason", ""))
        if code in PERMANENT_CODES:
            self._end(queue, refusal_of({"code": code, "message": reason, "offset": frame.get("offset")}))
        else:
            logger.info("subscription to %s ended by the server (%s: %s), resuming", queue.room, code, reason)
            self._resubscribe_later(queue, self._backoff.next_delay_s())


def _close_text(socket: aiohttp.ClientWebSocketResponse) -> str:
    error = socket.exception()
    if error is not None:
        return _error_text(error)
    return f"closed with code {socket.close_code}"


def _error_text(error: BaseException | None) -> str:
    return "no answer yet" if error is None else f"{type(error).__name__}: {error}"
