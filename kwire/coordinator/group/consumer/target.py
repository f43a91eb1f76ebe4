"""What everybody in a group shall have: the target assignment, and the fingerprint of the topics it depends on."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kwire.coordinator.assignment import STRATEGIES, MemberSubscription
from kwire.coordinator.group.consumer.members import NO_TARGET, Subscription, Target
from kwire.coordinator.group.topics_view import TopicsView

FINGERPRINT_BYTES = 8
NO_TOPICS_HASH = 0


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """A number that changes when a subscribed topic comes, goes or gets more partitions.

    Kafka computes another number from the same facts. One that takes over a log of ours finds the hash different, and
    assigns once more.
    """
    digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    is_any = False
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            is_any = True
            digest.update(topic.topic_id + topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if is_any else NO_TOPICS_HASH


def subscribed_names(said: Subscription, resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The topics a member named, and those that its expression means as far as that is known."""
    matched = resolved.get(said.topic_regex) if said.topic_regex else None
    return said.topic_names if not matched else said.topic_names | matched


def subscribed_by_any(everybody: Iterable[Subscription], resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*{subscribed_names(said, resolved) for said in everybody})


def preferred_assignor(subscriptions: Iterable[Subscription], assignors: Sequence[str]) -> str:
    """What most members ask for, of those there are; if none asks, the first."""
    votes = Counter(said.server_assignor for said in subscriptions if said.server_assignor in assignors)
    chosen = votes.most_common(1)[0][0] if votes else None
    return chosen or assignors[0]


def target_assignment(
    subscriptions: Mapping[str, Subscription],
    before: Mapping[str, Target],
    resolved: Mapping[str, frozenset[str]],
    topics: TopicsView,
    assignor: str,
) -> dict[str, Target]:
    """By member. `before` is the target so far, from which as little as possible is moved."""
    shapes: dict[bytes, int] = {}
    subscribed: dict[str, frozenset[bytes]] = {}
    # Members of a group mostly subscribe to the very same topics.
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}
    for member_id, said in subscriptions.items():
        names = subscribed_names(said, resolved)
        if names not in ids_of:
            found = [shape for name in names if (shape := topics.find(name)) is not None]
            shapes.update(found)
            ids_of[names] = frozenset(shape.topic_id for shape in found)
        subscribed[member_id] = ids_of[names]
    assigned = STRATEGIES[assignor](
        {
            member_id: MemberSubscription(
                topics=subscribed[member_id], owned=before.get(member_id, NO_TARGET), instance_id=said.instance_id
            )
            for member_id, said in subscriptions.items()
        },
        shapes,
    )
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
        for member_id, by_topic in assigned.items()
    }
