"""The small Python client for rooms and for the event store. Needs aiohttp only and nothing of the server.

    from kwire.client import Client, Event, Gap

    with Client("http://127.0.0.1:8082") as client:
        client.stream.publish("game-lobby-42", "player_move", {"player": "player-1", "action": "attack"})
        for item in client.stream.subscribe("game-lobby-42", from_offset=0, replay=True):
            ...

`AsyncClient` has the same calls for `await` and `async for`. A subscription hands out `Event`s in order, and between
them `CaughtUp` (history is over, from here on it is live), `Lagging` (the server's warning) and `Gap` (these events
cannot be had any more). It survives lost connections and restarts of the server: it goes on behind the last event it
handed out, and what could not be mended is a `Gap`, never silence.

`client.events` is the event store: `publish` and `publish_many` (all or nothing, stored once however often they are
sent), `read`, `last`, `event`, and subscriptions of the same kind by global position (`subscribe_all`) or version
(`subscribe_stream`), which hand out `StoredEvent`s.
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
from kwire.client.event_stream import EventStream
from kwire.client.events import CaughtUp, Event, Gap, History, Item, Lagging, NewEvent, Position, Published
from kwire.client.rooms import RoomInfo
from kwire.client.stored_events import EventPage, EventToStore, StoredEvent, StoredItem
from kwire.client.subscription import Subscription
from kwire.client.sync import Client, SyncSubscription
from kwire.client.sync_events import SyncEventStream

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
