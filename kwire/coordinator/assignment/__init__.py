"""Assignment: which member of a group reads which partitions.

Enters: members with their subscriptions and what they own, and how many partitions each topic has. Leaves: for each
member its partitions. Every partition of a topic that anybody subscribes to goes to exactly one subscriber. Nothing
here knows a protocol, a clock or chance, so one implementation serves every kind of group.
"""

from collections.abc import Mapping
from types import MappingProxyType

from kwire.coordinator.assignment.range import assign_range
from kwire.coordinator.assignment.round_robin import assign_round_robin
from kwire.coordinator.assignment.sticky import assign_sticky
from kwire.coordinator.assignment.subscription import MemberSubscription, Strategy

__all__ = ["CONSUMER_GROUP_STRATEGIES", "STRATEGIES", "MemberSubscription", "Strategy"]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "range": assign_range,
        "round_robin": assign_round_robin,
        "sticky": assign_sticky,
        # KIP-848's name for the same promise: balance first, then as little movement as possible.
        "uniform": assign_sticky,
    }
)

# What group.consumer.assignors may name, in the order of its default: the first is used when no member asks.
CONSUMER_GROUP_STRATEGIES = ("uniform", "range")
