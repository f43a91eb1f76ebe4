"""A small Python client for rooms and the event store. It needs only aiohttp and imports no modules of the server.

    from kwire.client import AsyncClient

    async with AsyncClient("http://127.0.0.1:8082") as client:
        await client.stream.publish("game-lobby-42", "player_move", {"player": "player-1", "action": "attack"})
        async for event in client.stream.subscribe("game-lobby-42", from_offset=0):
            ...

`Client` has the same calls for programs without an event loop.

A loop over a subscription yields events in order. If events can no longer be delivered, it raises `GapFound`; another
loop continues after the gap. A loop over `subscription.items()` also yields what is between events. `CaughtUp` reports
that all stored events were delivered. `Lagging` is a warning from the server that the subscription reads too slowly.
`Gap` names events that can no longer be delivered. After a lost connection or a restart of the server, a subscription
resumes after the last event that it yielded.

`client.events` has the calls of the event store. `publish` and `publish_many` are atomic and idempotent. `read`, `last`
and `event` return stored events. `subscribe_all` yields the events of all topics, in the order of their global
positions. `subscribe_stream` yields the events of one topic, in the order of their versions.
"""

from kwire.client.client import AsyncClient
from kwire.client.errors import (
    AnswerTimeout,
    BroadcastFailed,
    ClientClosed,
    ClientError,
    ConnectionLost,
    EventNotFound,
    EventTooLarge,
    GapFound,
    IdempotencyConflict,
    InvalidEvent,
    NotAnEventTopic,
    OffsetOutOfRange,
    PublishUncertain,
    Refused,
    RoomNotFound,
    SchemaViolation,
    SubscriptionFailed,
    TopicNotFound,
    Unreachable,
    WrongExpectedVersion,
)
from kwire.client.events import (
    CaughtUp,
    Event,
    EventPage,
    EventToStore,
    Gap,
    History,
    Item,
    Lagging,
    NewEvent,
    Position,
    Published,
    StoredEvent,
    StoredItem,
)
from kwire.client.rooms import RoomInfo
from kwire.client.store_subscription import EventStream
from kwire.client.subscription import Subscription
from kwire.client.sync.client import Client, SyncSubscription
from kwire.client.sync.event_store import SyncEventStream

__all__ = [
    "AnswerTimeout",
    "AsyncClient",
    "BroadcastFailed",
    "CaughtUp",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectionLost",
    "Event",
    "EventNotFound",
    "EventPage",
    "EventStream",
    "EventToStore",
    "EventTooLarge",
    "Gap",
    "GapFound",
    "History",
    "IdempotencyConflict",
    "InvalidEvent",
    "Item",
    "Lagging",
    "NewEvent",
    "NotAnEventTopic",
    "OffsetOutOfRange",
    "Position",
    "PublishUncertain",
    "Published",
    "Refused",
    "RoomInfo",
    "RoomNotFound",
    "SchemaViolation",
    "StoredEvent",
    "StoredItem",
    "Subscription",
    "SubscriptionFailed",
    "SyncEventStream",
    "SyncSubscription",
    "TopicNotFound",
    "Unreachable",
    "WrongExpectedVersion",
]
