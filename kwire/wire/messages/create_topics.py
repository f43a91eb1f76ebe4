"""CreateTopics, key 19: create topics.

Version 4 adds defaults for the numbers of partitions and replicas. Version 5 returns the configuration. Version 7
returns the topic id.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, Bool, ErrorText, Int8, Int16, Int32, String, TopicName, Uuid


@struct()
class CreatableReplicaAssignment:
    partition_index: Int32 = field("0+")
    broker_ids: Array[Int32] = field("0+")


@struct()
class CreatableTopicConfig:
    name: String = field("0+")
    value: String | None = field("0+")


@struct()
class CreatableTopic:
    name: TopicName = field("0+")
    num_partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    assignments: Array[CreatableReplicaAssignment] = field("0+")
    configs: Array[CreatableTopicConfig] = field("0+")


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: Array[CreatableTopic] = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)
    validate_only: Bool = field("1+", default=False)


@struct()
class CreatableTopicConfigs:
    name: String = field("5+", default="")
    value: String | None = field("5+", default="")
    read_only: Bool = field("5+", default=False)
    config_source: Int8 = field("5+", default=-1)
    is_sensitive: Bool = field("5+", default=False)


@struct()
class CreatableTopicResult:
    name: TopicName = field("0+")
    topic_id: Uuid = field("7+", default=ZERO_UUID)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("1+", default=None)
    topic_config_error_code: Int16 = field("5+", tag=0, default=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: Array[CreatableTopicConfigs] | None = field("5+", default=list)


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: Array[CreatableTopicResult] = field("0+")


CREATE_TOPICS = Api(CreateTopicsRequest, CreateTopicsResponse)
