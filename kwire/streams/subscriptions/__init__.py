"""Subscriptions: delivery of the events of a log, first history, then live, to sockets or to Python code.

`Subscriptions.subscribe` delivers to a sink, `subscribe_messages` returns an asynchronous iterator."""

from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, ControlMessage, Gap, Lagging
from kwire.streams.subscriptions.event_batches import Encoding, EventBatch
from kwire.streams.subscriptions.messages import Message, SubscribedMessages
from kwire.streams.subscriptions.registry import Subscriptions, subscribe_messages
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.streams.subscriptions.subscription import OnLag, Sink, SubscribeOptions, Subscription, SubscriptionFacts

__all__ = [
    "FROM_NEWEST",
    "FROM_OLDEST",
    "CaughtUp",
    "Checkpoint",
    "Closed",
    "ControlMessage",
    "Encoding",
    "EventBatch",
    "Gap",
    "Lagging",
    "Message",
    "OnLag",
    "Sink",
    "Start",
    "SubscribeOptions",
    "SubscribedMessages",
    "Subscription",
    "SubscriptionFacts",
    "Subscriptions",
    "subscribe_messages",
]
