"""The event store: publish events with schemas, read them back, follow everything or one topic."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import aiohttp

from kwire.client.backoff import Backoff
from kwire.client.cursor import Cursor, Start
from kwire.client.errors import AnswerTimeout, ClientError, ConnectionLost, PublishUncertain, Refused, Unreachable
from kwire.client.event_stream import EventStream
from kwire.client.events import Position
from kwire.client.http import Http
from kwire.client.stored_events import EventPage, EventToStore, StoredEvent, stored_body, stored_event
from kwire.client.stream import OnLag

ALL = "all"
PAGE_EVENTS = 1_000
STREAMS_MAX = 1_000
# The server does not know, or is about to stop. What is sent again under the same key is stored once.
UNCERTAIN_CODES = frozenset({"REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER"})


class EventStore:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        http: Http,
        new_backoff: Callable[[], Backoff],
        timeout_s: float,
    ) -> None:
        self._session = session
        self._url = url
        self._http = http
        self._new_backoff = new_backoff
        self._timeout_s = timeout_s
        self._streams: set[EventStream] = set()

    async def close(self) -> None:
        streams, self._streams = self._streams, set()
        for stream in streams:
            await stream.close()

    # --- publishing

    async def publish(
        self,
        topic: str,
        event_type: str,
        payload: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
        event_id: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Store one event; its id."""
        event = EventToStore(topic, event_type, payload, metadata or {}, key, event_id, expected_version)
        return (await self.publish_many([event], idempotency_key=idempotency_key))[0]

    async def publish_many(
        self, events: Sequence[EventToStore], *, idempotency_key: str | None = None
    ) -> Sequence[str]:
        """Store all of them, in whatever topics, or none; their ids in order.

        Every call has an idempotency key, its own or yours: a request whose answer was lost is sent again until the
        client's `timeout_s` is over, and stored once. PublishUncertain means that nobody knows: call again, with the
        same key.
        """
        if not events:
            return ()
        key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
        body = [stored_body(event) for event in events]
        backoff = self._new_backoff()
        trouble: ClientError = Unreachable(f"no connection to {self._url} within {self._timeout_s} s")
        is_asking = False
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    is_asking = True
                    try:
                        answer = await self._http.call("POST", "/events", body, headers={"Idempotency-Key": key})
                        ids: list[str] = answer["eventIds"]
                        return ids
                    except (ConnectionLost, Unreachable) as error:
                        # Once it may have arrived it stays uncertain.
                        if not isinstance(trouble, PublishUncertain) or not isinstance(error, Unreachable):
                            trouble = error
                    except Refused as error:
                        if error.code not in UNCERTAIN_CODES:
                            raise
                        trouble = PublishUncertain(str(error))
                    is_asking = False
                    await asyncio.sleep(backoff.next_delay_s())
        except TimeoutError:
            # What was on its way when the time was over may have arrived, whatever became of the tries before it.
            if is_asking and not isinstance(trouble, PublishUncertain):
                trouble = AnswerTimeout(f"no answer to a publish within {self._timeout_s} s")
            raise trouble from None

    # --- reading

    async def read(
        self,
        topic: str,
        *,
        since: str | None = None,
        before: str | None = None,
        date: str | None = None,
        limit: int | None = None,
        is_backwards: bool = False,
    ) -> EventPage:
        """A page of events. `since` and `before` are ids and not part of it, `date` is a day in UTC (2025-07-06)."""
        asked: dict[str, str | int | None] = {
            "sinceEventId": since,
            "beforeEventId": before,
            "date": date,
            "limit": limit,
            "order": "backwards" if is_backwards else None,
        }
        query = {name: value for name, value in asked.items() if value is not None}
        page = await self._http.call("GET", f"/topics/{quote(topic, safe='')}/events", query=query)
        return EventPage([stored_event(one) for one in page["events"]], page["next"])

    async def read_all(
        self, topic: str, *, since: str | None = None, date: str | None = None
    ) -> AsyncIterator[StoredEvent]:
        """All events there are now, page by page."""
        place = since
        while True:
            page = await self.read(topic, since=place, date=date, limit=PAGE_EVENTS)
            for event in page.events:
                yield event
            if page.next is None:
                return
            place = page.next

    async def last(self, topic: str) -> StoredEvent | None:
        """The newest event; its version is what a writer may expect."""
        page = await self._http.call("GET", f"/topics/{quote(topic, safe='')}/events", query={"last": "true"})
        return stored_event(page["events"][0]) if page["events"] else None

    async def event(self, event_id: str) -> StoredEvent:
        return stored_event(await self._http.call("GET", f"/events/{quote(event_id, safe='')}"))

    # --- following

    async def subscribe_all(
        self,
        *,
        from_position: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> EventStream:
        """Every event in global order. `from_position`: None only what is new, N from there, -N so many back.

        `resume` is the `position` of an earlier subscription. Losses of the connection are mended from then on; what
        cannot be mended is handed out as a `Gap`.
        """
        return await self._subscribed(ALL, "/subscribe/all", "position", from_position, resume, on_lag, types)

    async def subscribe_stream(
        self,
        topic: str,
        *,
        from_version: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> EventStream:
        """The same for one topic, by versions."""
        path = f"/subscribe/streams/{quote(topic, safe='')}"
        return await self._subscribed(topic, path, "version", from_version, resume, on_lag, types)

    async def _subscribed(
        self,
        name: str,
        path: str,
        place: str,
        begin: int | str | None,
        resume: Position | None,
        on_lag: OnLag,
        types: Collection[str] | None,
    ) -> EventStream:
        self._streams = {stream for stream in self._streams if not stream.is_over}
        if len(self._streams) >= STREAMS_MAX:
            raise ValueError(f"a client can have {STREAMS_MAX} subscriptions; close those that are not read")
        options = {"on_lag": on_lag, "types": None if types is None else ",".join(sorted(types))}
        cursor = Cursor(name, Start(resume=resume), options)
        stream = EventStream(self._session, self._url + path, cursor, place, begin, self._new_backoff())
        await stream.open(self._timeout_s)
        self._streams.add(stream)
        return stream
