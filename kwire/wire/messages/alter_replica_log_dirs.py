"""AlterReplicaLogDirs, key 34: move replicas to another directory of the same broker.

Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int16, Int32, String, TopicName


@struct()
class AlterReplicaLogDirTopic:
    name: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class AlterReplicaLogDir:
    path: String = field("0+")
    topics: Array[AlterReplicaLogDirTopic] = field("0+")


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: Array[AlterReplicaLogDir] = field("0+")


@struct()
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class AlterReplicaLogDirTopicResult:
    topic_name: TopicName = field("0+")
    partitions: Array[AlterReplicaLogDirPartitionResult] = field("0+")


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[AlterReplicaLogDirTopicResult] = field("0+")


ALTER_REPLICA_LOG_DIRS = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
