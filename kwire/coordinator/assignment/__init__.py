"""Assignment strategies: pure functions that assign every partition of a subscribed topic to exactly one member."""

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
        # KIP-848's uniform assignor has the same goals: balance first, then as few moved partitions as possible.
        "uniform": assign_sticky,
    }
)

# The values that group.consumer.assignors allows, in the order of the default value.
CONSUMER_GROUP_STRATEGIES = ("uniform", "range")
