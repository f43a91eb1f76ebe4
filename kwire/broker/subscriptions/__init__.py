"""All subscriptions of this node: who listens to what, and the plain Python way to listen.

subscription = await subscriptions.subscribe("lobby", topic, partition, Start.parse(-50), sink)
... the answer, made of subscription.facts ...
subscription.begin()

messages = await subscribe_messages(subscriptions, "lobby", topic, partition, FROM_OLDEST)
async for message in messages: ...
"""

from kwire.broker.subscriptions.marks import CaughtUp, Checkpoint, Closed, Gap, Lagging, Mark
from kwire.broker.subscriptions.messages import Message, SubscribedMessages
from kwire.broker.subscriptions.portions import Encoding, Portion
from kwire.broker.subscriptions.registry import Subscriptions, subscribe_messages
from kwire.broker.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start, epoch_of
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
    "epoch_of",
    "subscribe_messages",
]
