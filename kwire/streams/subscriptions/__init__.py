"""All subscriptions of this node, and how plain Python code subscribes.

subscription = await subscriptions.subscribe("lobby", log, Start.parse(-50), sink)
... answer the request with subscription.facts ...
subscription.begin()

messages = await subscribe_messages(subscriptions, "lobby", log, FROM_OLDEST)
async for message in messages: ...
"""

from kwire.broker.subscriptions.marks import CaughtUp, Checkpoint, Closed, Gap, Lagging, Mark
from kwire.broker.subscriptions.messages import Message, SubscribedMessages
from kwire.broker.subscriptions.portions import Encoding, Portion
from kwire.broker.subscriptions.registry import Subscriptions, subscribe_messages
from kwire.broker.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.broker.subscriptions.subscription import OnLag, Sink, SubscribeOptions, Subscription, SubscriptionFacts

__all__ = [
    "FROM_NEWEST",
    "FROM_OLDEST",
    "CaughtUp",
    "Checkpoint",
    "Closed",
    "Encoding",
    "Gap",
    "Lagging",
    "Mark",
    "Message",
    "OnLag",
    "Portion",
    "Sink",
    "Start",
    "SubscribeOptions",
    "SubscribedMessages",
    "Subscription",
    "SubscriptionFacts",
    "Subscriptions",
    "subscribe_messages",
]
