"""What consumers of a classic group tell each other: subscriptions and assignments, opaque bytes to the server.

They travel inside JoinGroup and SyncGroup and are stored inside a group's record; each is a 16-bit version and a body.
A version above 3 is read as 3: later ones may only add fields at the end. This is neither an API nor a record, so it
stands on its own.

Subscription 1: partitions owned. 2: the generation they were owned in. 3: rack. The assignment is the same in all.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Bytes, Int32, String


@struct()
class OwnedTopicPartition:
    topic: String = field("1+", default="")
    partitions: Array[Int32] = field("1+", default=list)


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: Array[String] = field("0+")
    user_data: Bytes | None = field("0+", default=None)
    owned_partitions: Array[OwnedTopicPartition] = field("1+", default=list)
    generation_id: Int32 = field("2+", default=-1)
    rack_id: String | None = field("3+", default=None)


@struct()
class TopicPartition:
    topic: String = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: Array[TopicPartition] = field("0+")
    user_data: Bytes | None = field("0+", default=None)
