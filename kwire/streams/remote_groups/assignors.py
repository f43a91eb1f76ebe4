"""The assignors of HTTP members in groups of the classic protocol: pure functions with the formats of Kafka's clients.

A member of any client may be the leader, so subscriptions and assignments are those that Kafka's own assignors write
and read: `range`, `roundrobin`, `sticky` and `cooperative-sticky`. A member prefers the strategy of its group, and
accepts the others, so that Kafka's consumers can join with their defaults.

An HTTP member releases all its partitions before it joins again, whichever assignor was chosen. So its subscription
has no owned partitions. For `sticky`, its last assignment is in the user data.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from kwire.coordinator.assignment import STRATEGIES, MemberSubscription
from kwire.coordinator.group.classic.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kwire.kafka_client.groups.membership import JoinedMember
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription, StickyUserData, TopicPartition
from kwire.wire.errors import WireError

log = logging.getLogger("kwire.streams.remote")

COOPERATIVE: Final = "cooperative-sticky"
# Kafka's names of the strategies.
PROTOCOL_OF: Final[Mapping[str, str]] = {"range": "range", "round_robin": "roundrobin", "sticky": "sticky"}
STRATEGY_OF: Final[Mapping[str, str]] = {
    **{protocol: strategy for strategy, protocol in PROTOCOL_OF.items()},
    COOPERATIVE: "sticky",
}
# After the preferred one: first those that the clients of Kafka have in their defaults.
_ORDER: Final = ("range", "roundrobin", COOPERATIVE, "sticky")
_SUBSCRIPTION_VERSION: Final = 1
# All versions have the same fields.
_ASSIGNMENT_VERSION: Final = 0
_STICKY_VERSION: Final = 1

# Partitions by topic.
Partitions = Mapping[str, Sequence[int]]


def protocols(topic: str, strategy: str, last: Partitions, generation: int) -> list[tuple[str, bytes]]:
    """Return the names of the assignors of a member, the preferred one first, with its subscription for each."""
    plain = write_subscription([topic], _SUBSCRIPTION_VERSION)
    data = StickyUserData(
        previous_assignment=[TopicPartition(topic=name, partitions=list(some)) for name, some in last.items()],
        generation=generation,
    )
    sticky = write_subscription([topic], _SUBSCRIPTION_VERSION, encode_message(data, _STICKY_VERSION))
    preferred = PROTOCOL_OF[strategy]
    names = [preferred, *(name for name in _ORDER if name != preferred)]
    return [(name, sticky if name == "sticky" else plain) for name in names]


def subscribed_topics(members: Sequence[JoinedMember]) -> frozenset[str]:
    return frozenset(topic for one in members for topic in _subscription_of(one).topics)


def assign(
    protocol: str, members: Sequence[JoinedMember], partition_counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Assign the partitions of all subscribed topics to the members of a group."""
    subscriptions = {one.member_id: _subscription_of(one) for one in members}
    owned = {member_id: _owned(protocol, one) for member_id, one in subscriptions.items()}
    held = _newest(owned)
    assigned = STRATEGIES[STRATEGY_OF[protocol]](
        {
            one.member_id: MemberSubscription(
                topics=frozenset(subscriptions[one.member_id].topics),
                owned=held[one.member_id],
                instance_id=one.instance_id,
            )
            for one in members
        },
        partition_counts,
    )
    return _without_unreleased(assigned, held) if protocol == COOPERATIVE else assigned


def _without_unreleased(
    assigned: dict[str, dict[str, list[int]]], held: Mapping[str, Partitions]
) -> dict[str, dict[str, list[int]]]:
    """Leave out partitions that another member still has: it releases them, and the group rebalances once more."""
    owner_of = {
        (topic, one): member_id for member_id, topics in held.items() for topic, some in topics.items() for one in some
    }
    return {
        member_id: {
            topic: free
            for topic, some in topics.items()
            if (free := [one for one in some if owner_of.get((topic, one), member_id) == member_id])
        }
        for member_id, topics in assigned.items()
    }


def written_assignments(assigned: Mapping[str, Partitions]) -> dict[str, bytes]:
    return {member_id: write_assignment(topics, _ASSIGNMENT_VERSION) for member_id, topics in assigned.items()}


def read_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Return the partitions that the leader has assigned. Raises WireError."""
    # A leader may leave out a member that has no partitions.
    if not assignment:
        return {}
    return {one.topic: sorted(one.partitions) for one in read_assignment(assignment).assigned_partitions}


def _subscription_of(member: JoinedMember) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(member.metadata)
    except WireError as error:
        log.warning("member %s gets no partitions, because its subscription is damaged: %s", member.member_id, error)
        return ConsumerProtocolSubscription(topics=[])


def _owned(protocol: str, subscription: ConsumerProtocolSubscription) -> tuple[int, dict[str, list[int]]]:
    """Return the partitions that a member had, and the generation in which it had them."""
    if protocol == COOPERATIVE:
        had = {one.topic: list(one.partitions) for one in subscription.owned_partitions}
        return subscription.generation_id, had
    if protocol != "sticky" or not subscription.user_data:
        return -1, {}
    for version in (_STICKY_VERSION, 0):
        try:
            data = decode_message(StickyUserData, version, memoryview(subscription.user_data))
        except WireError:
            continue
        return data.generation, {one.topic: list(one.partitions) for one in data.previous_assignment}
    return -1, {}


def _newest(owned: Mapping[str, tuple[int, dict[str, list[int]]]]) -> dict[str, dict[str, list[int]]]:
    """Leave each partition to the member that had it in the newest generation."""
    newest: dict[tuple[str, int], tuple[int, str]] = {}
    for member_id, (generation, topics) in owned.items():
        for topic, some in topics.items():
            for one in some:
                if generation > newest.get((topic, one), (-2, ""))[0]:
                    newest[topic, one] = generation, member_id
    held: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in owned}
    for (topic, one), (_, member_id) in newest.items():
        held[member_id].setdefault(topic, []).append(one)
    return held
