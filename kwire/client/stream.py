"""Calls on events of rooms: publish, subscribe, history."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from kwire.client.cursor import Cursor, Start
from kwire.client.errors import TooLongForSocket, Unreachable
from kwire.client.events import Event, History, NewEvent, Position, Published, body_of, event_of
from kwire.client.http import Http, room_path
from kwire.client.subscription import ItemQueue, Subscription
from kwire.client.websocket import ROOMS_MAX, WebSocketConnection

# A WebSocket can have only one subscription per room. So several subscriptions to a room need several WebSockets.
WEBSOCKETS_MAX = 100

OnLag: TypeAlias = Literal["terminate", "catchup", "drop"]


class Stream:
    """The calls for events of rooms, available as `client.stream`."""

    def __init__(self, new_connection: Callable[[], WebSocketConnection], http: Http, timeout_s: float) -> None:
        self._new_connection = new_connection
        self._http = http
        self._timeout_s = timeout_s
        self._connections: list[WebSocketConnection] = []

    async def close(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            await connection.close()

    async def publish(
        self,
        room: str,
        event_type: str,
        data: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        event_id: str | None = None,
        key: str | None = None,
    ) -> Published:
        """Publish one event. The event is stored when this call returns.

        PublishUncertain is raised if it is unknown whether the event is stored. Concurrent calls share one connection
        and do not wait for each other.
        """
        body = body_of(NewEvent(event_type, data, metadata or {}, event_id, key))
        try:
            result = await self._connection_for(None).command(
                "stream.publish", {"room": room, **body}, self._timeout_s, is_write=True
            )
        except TooLongForSocket:
            result = await self._http.call("POST", room_path(room, "/events"), body)
        return Published(result["event_id"], result["offset"], result["subscribers_notified"])

    async def publish_many(self, room: str, events: Sequence[NewEvent]) -> Sequence[Published]:
        """Publish up to 1,000 events atomically, in this order and with consecutive offsets."""
        if not events:
            return ()
        body = [body_of(event) for event in events]
        result = await self._http.call("POST", room_path(room, "/events"), body)
        notified = result["subscribers_notified"]
        return [
            Published(event_id, offset, notified)
            for offset, event_id in enumerate(result["event_ids"], start=result["offset"])
        ]

    def subscribe(
        self,
        room: str,
        *,
        from_offset: int | None = None,
        replay: bool | None = None,
        from_time: str | int | None = None,
        resume: Position | None = None,
        on_lag: OnLag | None = None,
        types: Collection[str] | None = None,
    ) -> Subscription:
        """Subscribe to a room: `async for event in client.stream.subscribe(room)`.

        The subscription begins with the first use of the result: `async for`, `async with` or `await`.

        `from_offset`: None for new events only, 0 for all stored events, N for events from offset N, -N for the last N
        events. `resume` is the `position` of an earlier subscription. After a lost connection, the subscription
        reconnects. Events that can no longer be delivered are reported as a gap.
        """
        start = Start(from_offset, replay, from_time, resume)
        options = {"on_lag": on_lag, "types": sorted(types) if types is not None else None}
        return Subscription(room, resume, lambda: self._start(Cursor(room, start, options)))

    async def _start(self, cursor: Cursor) -> ItemQueue:
        connection = self._connection_for(cursor.room)
        queue = ItemQueue(cursor, connection)
        await connection.add(queue)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(queue.started)
        except TimeoutError:
            await queue.close()
            raise Unreachable(
                f"room {queue.room}: the server did not answer the subscription in time: {connection.failure_text}"
            ) from None
        except BaseException:
            await queue.close()
            raise
        return queue

    async def history(
        self, room: str, *, from_offset: int | None = None, to_offset: int | None = None, limit: int | None = None
    ) -> History:
        """Return the stored events from `from_offset` to `to_offset`, both included.

        At most `limit` events are returned (the server's default is 100).
        """
        parameters = {"room": room, "from_offset": from_offset, "to_offset": to_offset, "limit": limit}
        payload = {name: value for name, value in parameters.items() if value is not None}
        result = await self._connection_for(None).command("stream.history", payload, self._timeout_s, is_write=False)
        return History(
            [event_of(each, room) for each in result["events"]], result["oldest_offset"], result["newest_offset"]
        )

    async def event(self, room: str, offset: int) -> Event:
        """Return the event with this offset."""
        return event_of(await self._http.call("GET", room_path(room, f"/events/{offset}")), room)

    def _connection_for(self, room: str | None) -> WebSocketConnection:
        """Return a connection that has no subscription to this room yet and has fewer than ROOMS_MAX subscriptions.

        If `room` is None, any connection is returned. If no connection is suitable, a new one is created.
        """
        for connection in self._connections:
            if room is None or (room not in connection.rooms and len(connection.rooms) < ROOMS_MAX):
                return connection
        if len(self._connections) >= WEBSOCKETS_MAX:
            raise ValueError(f"the client has the maximum of {WEBSOCKETS_MAX} connections: close unused subscriptions")
        self._connections.append(self._new_connection())
        return self._connections[-1]
