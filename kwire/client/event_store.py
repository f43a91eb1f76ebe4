"""Calls of the event store: publish events, read events, and subscribe to all topics or to one topic."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote
from weakref import WeakSet

import aiohttp

from kwire.client.backoff import Backoff
from kwire.client.cursor import Cursor, Start
from kwire.client.errors import AnswerTimeout, ClientError, ConnectionLost, PublishUncertain, Refused, Unreachable
from kwire.client.events import EventPage, EventToStore, Position, StoredEvent, stored_body, stored_event
from kwire.client.http import Http
from kwire.client.store_subscription import EventStream
from kwire.client.stream import OnLag

ALL = "all"
PAGE_EVENTS = 1_000
STREAMS_MAX = 1_000
# After these errors the events may be stored or not. The client sends the request again with the same idempotency key,
# so that the events are stored once.
UNCERTAIN_CODES = frozenset({"REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER"})


class EventStore:
    """The calls of the event store, available as `client.events`."""

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
        # A subscription that its user has dropped leaves the set, and closes itself.
        self._streams: WeakSet[EventStream] = WeakSet()

    async def close(self) -> None:
        for stream in list(self._streams):
            await stream.close()

    async def create_topic(
        self, topic: str, schemas: Mapping[str, Mapping[str, Any]], *, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic of the event store. `schemas` has a JSON Schema for each event type: `{}` allows any payload.

        `configs` are topic settings, by Kafka's names. If the topic exists, `Refused` is raised, with the code
        TOPIC_ALREADY_EXISTS.
        """
        body: dict[str, Any] = {
            "name": topic,
            "schemas": [{"eventType": event_type, **schema} for event_type, schema in schemas.items()],
        }
        if configs:
            body["configs"] = dict(configs)
        await self._http.call("POST", "/topics", body)

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
        """Publish one event and return its id."""
        event = EventToStore(topic, event_type, payload, metadata or {}, key, event_id, expected_version)
        return (await self.publish_many([event], idempotency_key=idempotency_key))[0]

    async def publish_many(
        self, events: Sequence[EventToStore], *, idempotency_key: str | None = None
    ) -> Sequence[str]:
        """Store all events or none, and return their ids in order. The events may belong to different topics.

        If the caller passes no `idempotency_key`, the client generates a key. If no response arrives, the client sends
        the request again until `timeout_s` has passed. The key ensures that the events are stored only once.
        PublishUncertain is raised if it is unknown whether the events are stored: call again with the same key.
        """
        if not events:
            return ()
        key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
        body = [stored_body(event) for event in events]
        backoff = self._new_backoff()
        failure: ClientError = Unreachable(f"no connection to {self._url} within {self._timeout_s} s")
        is_in_flight = False
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    is_in_flight = True
                    try:
                        answer = await self._http.call("POST", "/events", body, headers={"Idempotency-Key": key})
                        ids: list[str] = answer["eventIds"]
                        return ids
                    except (ConnectionLost, Unreachable) as error:
                        # If an earlier request may have arrived, the result stays uncertain.
                        if not isinstance(failure, PublishUncertain) or not isinstance(error, Unreachable):
                            failure = error
                    except Refused as error:
                        if error.code not in UNCERTAIN_CODES:
                            raise
                        failure = PublishUncertain(str(error))
                    is_in_flight = False
                    await asyncio.sleep(backoff.next_delay_s())
        except TimeoutError:
            # The request that was in flight at the timeout may have arrived, even if all earlier attempts failed.
            if is_in_flight and not isinstance(failure, PublishUncertain):
                failure = AnswerTimeout(f"no answer to a publish within {self._timeout_s} s")
            raise failure from None

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
        """Return a page of the topic's events.

        `since` and `before` are event ids, both exclusive. `date` is a day in UTC, such as 2025-07-06.
        """
        parameters: dict[str, str | int | None] = {
            "sinceEventId": since,
            "beforeEventId": before,
            "date": date,
            "limit": limit,
            "order": "backwards" if is_backwards else None,
        }
        query = {name: value for name, value in parameters.items() if value is not None}
        page = await self._http.call("GET", f"/topics/{quote(topic, safe='')}/events", query=query)
        return EventPage([stored_event(one) for one in page["events"]], page["next"])

    async def read_all(
        self, topic: str, *, since: str | None = None, date: str | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield all stored events of the topic. The client requests the events page by page."""
        after = since
        while True:
            page = await self.read(topic, since=after, date=date, limit=PAGE_EVENTS)
            for event in page.events:
                yield event
            if page.next is None:
                return
            after = page.next

    async def last(self, topic: str) -> StoredEvent | None:
        """Return the topic's newest event, or None if the topic is empty.

        The version of this event is the `expected_version` for the next event.
        """
        page = await self._http.call("GET", f"/topics/{quote(topic, safe='')}/events", query={"last": "true"})
        return stored_event(page["events"][0]) if page["events"] else None

    async def event(self, event_id: str) -> StoredEvent:
        """Return the event with this id."""
        return stored_event(await self._http.call("GET", f"/events/{quote(event_id, safe='')}"))

    # --- subscriptions

    def subscribe_all(
        self,
        *,
        from_position: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> EventStream:
        """Subscribe to all topics, in global order: `async for event in client.events.subscribe_all()`.

        The subscription begins with the first use of the result: `async for`, `async with` or `await`.

        `from_position`: None for new events only, "oldest" for all stored events, N for events from position N, -N for
        the last N events. `resume` is the `position` of an earlier subscription. After a lost connection, the
        subscription reconnects. Events that can no longer be delivered are reported as a gap.
        """
        return self._subscribe(ALL, "/subscribe/all", "position", from_position, resume, on_lag, types)

    def subscribe_stream(
        self,
        topic: str,
        *,
        from_version: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> EventStream:
        """Subscribe to one topic. The arguments are those of `subscribe_all`, with versions instead of positions."""
        path = f"/subscribe/streams/{quote(topic, safe='')}"
        return self._subscribe(topic, path, "version", from_version, resume, on_lag, types)

    def _subscribe(
        self,
        name: str,
        path: str,
        offset_name: str,
        begin: int | str | None,
        resume: Position | None,
        on_lag: OnLag,
        types: Collection[str] | None,
    ) -> EventStream:
        if sum(not stream.is_over for stream in self._streams) >= STREAMS_MAX:
            raise ValueError(f"the client has the maximum of {STREAMS_MAX} subscriptions: close unused ones")
        options = {"on_lag": on_lag, "types": None if types is None else ",".join(sorted(types))}
        cursor = Cursor(name, Start(resume=resume), options)
        url = self._url + path
        stream = EventStream(self._session, url, cursor, offset_name, begin, self._new_backoff(), self._timeout_s)
        self._streams.add(stream)
        return stream
