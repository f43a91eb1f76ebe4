"""Computes the target assignment of a consumer group, and the hash of the topics on which it depends."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kwire.coordinator.assignment import STRATEGIES, MemberSubscription
from kwire.coordinator.group.consumer.members import NO_TARGET, Subscription, Target
from kwire.coordinator.group.topics_view import TopicsView

FINGERPRINT_BYTES = 8
NO_TOPICS_HASH = 0


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Return a hash that changes when a subscribed topic is created, deleted or gets more partitions.

    Kafka computes a different hash from the same data. So a Kafka broker that reads kwire's log computes the assignment
    once again.
    """
    digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    is_any = False
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            is_any = True
            digest.update(topic.topic_id + topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if is_any else NO_TOPICS_HASH


def subscribed_names(subscription: Subscription, resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the topics that a member subscribes to by name or by its regular expression, whether it may describe them.

    `resolved` has the matching topics of each expression whose topic search has finished.
    """
    matched = resolved.get(subscription.topic_regex) if subscription.topic_regex else None
    return subscription.topic_names if not matched else subscription.topic_names | matched


def subscribed_by_any(subscriptions: Iterable[Subscription], resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*{subscribed_names(subscription, resolved) for subscription in subscriptions})


def preferred_assignor(subscriptions: Iterable[Subscription], assignors: Sequence[str]) -> str:
    """Return the supported assignor that most members request; the first one if no member requests any."""
    votes = Counter(
        subscription.server_assignor for subscription in subscriptions if subscription.server_assignor in assignors
    )
    chosen = votes.most_common(1)[0][0] if votes else None
    return chosen or assignors[0]


def target_assignment(
    subscriptions: Mapping[str, Subscription],
    before: Mapping[str, Target],
    names_of: Callable[[str, Subscription], frozenset[str]],
    topics: TopicsView,
    assignor: str,
) -> dict[str, Target]:
    """Return the target assignment of each member. `before` is the previous target assignment of each member.

    `names_of` returns the topics that a member subscribes to.
    """
    shapes: dict[bytes, int] = {}
    subscribed: dict[str, frozenset[bytes]] = {}
    # The topic ids of each distinct subscription, computed once: most members of a group subscribe to the same topics.
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}
    for member_id, subscription in subscriptions.items():
        names = names_of(member_id, subscription)
        if names not in ids_of:
            found = [shape for name in names if (shape := topics.find(name)) is not None]
            shapes.update(found)
            ids_of[names] = frozenset(shape.topic_id for shape in found)
        subscribed[member_id] = ids_of[names]
    assigned = STRATEGIES[assignor](
        {
            member_id: MemberSubscription(
                topics=subscribed[member_id],
                owned=before.get(member_id, NO_TARGET),
                instance_id=subscription.instance_id,
            )
            for member_id, subscription in subscriptions.items()
        },
        shapes,
    )
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
        for member_id, by_topic in assigned.items()
    }
