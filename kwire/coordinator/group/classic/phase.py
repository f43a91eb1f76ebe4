"""The states of a classic group."""

from enum import Enum

from kwire.enum_members import fast_members


@fast_members
class Phase(Enum):
    """The group's state. The values are Kafka's names, as Kafka's tools print them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
