"""The consumer protocol of classic groups: subscriptions and assignments.

Subscriptions are part of JoinGroup, assignments of SyncGroup. Both are stored in the record of the group and are opaque
bytes for the coordinator. Each consists of a 16-bit version and a body. A version above 3 is decoded as version 3,
because later versions may only add fields at the end.

Subscription version 1 adds the owned partitions, version 2 the generation in which they were owned, and version 3 the
rack. The assignment has the same fields in all versions.

The user data of Kafka's sticky assignor is the last assignment of the member, and from version 1 on its generation. It
has no version of its own.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Bytes, Int32, String, TopicName


@struct()
class OwnedTopicPartition:
    topic: TopicName = field("1+", default="")
    partitions: Array[Int32] = field("1+", default=list)


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: Array[TopicName] = field("0+")
    user_data: Bytes | None = field("0+", default=None)
    owned_partitions: Array[OwnedTopicPartition] = field("1+", default=list)
    generation_id: Int32 = field("2+", default=-1)
    rack_id: String | None = field("3+", default=None)


@struct()
class TopicPartition:
    topic: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: Array[TopicPartition] = field("0+")
    user_data: Bytes | None = field("0+", default=None)


@message(versions="0-1", flexible="none")
class StickyUserData:
    previous_assignment: Array[TopicPartition] = field("0+")
    generation: Int32 = field("1+", default=-1)
