"""Publish, subscribe, history: the commands on rooms."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from kwire.client.cursor import Cursor, Start
from kwire.client.errors import TooLongForSocket, Unreachable
from kwire.client.events import Event, History, NewEvent, Position, Published, body_of, event_of
from kwire.client.http import Http, room_path
from kwire.client.link import ROOMS_MAX, Link
from kwire.client.subscription import Subscription

# Each second subscription to one room takes a connection of its own.
LINKS_MAX = 100

OnLag: TypeAlias = Literal["terminate", "catchup", "drop"]


class Stream:
    def __init__(self, new_link: Callable[[], Link], http: Http, timeout_s: float) -> None:
        self._new_link = new_link
        self._http = http
        self._timeout_s = timeout_s
        self._links: list[Link] = []

    async def close(self) -> None:
        links, self._links = self._links, []
        for link in links:
            await link.close()

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
        """Store one event. When this returns it is stored; PublishUncertain means that nobody knows.

        Calls that run at the same time share the connection and do not wait for each other.
        """
        body = body_of(NewEvent(event_type, data, metadata or {}, event_id, key))
        try:
            result = await self._link_for(None).command(
                "stream.publish", {"room": room, **body}, self._timeout_s, is_write=True
            )
        except TooLongForSocket:
            result = await self._http.call("POST", room_path(room, "/events"), body)
        return Published(result["event_id"], result["offset"], result["subscribers_notified"])

    async def publish_many(self, room: str, events: Sequence[NewEvent]) -> Sequence[Published]:
        """Store up to 1,000 events in one request: all of them, in this order, with nothing between, or none."""
        if not events:
            return ()
        body = [body_of(event) for event in events]
        result = await self._http.call("POST", room_path(room, "/events"), body)
        notified = result["subscribers_notified"]
        return [
            Published(event_id, offset, notified)
            for offset, event_id in enumerate(result["event_ids"], start=result["offset"])
        ]

    async def subscribe(
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
        """Read a room. `from_offset`: None only what is new, 0 all there is, N from there, -N so many back.

        `resume` is the `position` of an earlier subscription. Losses of the connection are mended from then on; what
        cannot be mended is handed out as a `Gap`.
        """
        cursor = Cursor(
            room,
            Start(from_offset, replay, from_time, resume),
            {"on_lag": on_lag, "types": sorted(types) if types is not None else None},
        )
        link = self._link_for(room)
        subscription = Subscription(cursor, link)
        await link.add(subscription)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(subscription.started)
        except TimeoutError:
            await subscription.close()
            raise Unreachable(f"no answer to the subscription to {room}: {link.trouble}") from None
        except BaseException:
            await subscription.close()
            raise
        return subscription

    async def history(
        self, room: str, *, from_offset: int | None = None, to_offset: int | None = None, limit: int | None = None
    ) -> History:
        """Stored events, both ends included; at most `limit` (the server's default is 100)."""
        asked = {"room": room, "from_offset": from_offset, "to_offset": to_offset, "limit": limit}
        payload = {name: value for name, value in asked.items() if value is not None}
        result = await self._link_for(None).command("stream.history", payload, self._timeout_s, is_write=False)
        return History(
            [event_of(each, room) for each in result["events"]], result["oldest_offset"], result["newest_offset"]
        )

    async def event(self, room: str, offset: int) -> Event:
        """One event by its offset."""
        return event_of(await self._http.call("GET", room_path(room, f"/events/{offset}")), room)

    def _link_for(self, room: str | None) -> Link:
        """A link that does not read this room yet; one that has room for it."""
        for link in self._links:
            if room is None or (room not in link.rooms and len(link.rooms) < ROOMS_MAX):
                return link
        if len(self._links) >= LINKS_MAX:
            raise ValueError(f"a client can have {LINKS_MAX} connections; close subscriptions that are not read")
        self._links.append(self._new_link())
        return self._links[-1]
