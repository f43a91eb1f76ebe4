"""Requests about topics, records, configs and the cluster, each with the right that it needs and Kafka's refusal.

A case names one right. If an API accepts one of several rights, or needs several, it has several cases; `given` are the
rights that the client has besides.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.access.acl import CLUSTER_NAME, PatternType, ResourceType
from kwire.config.description import ResourceType as ConfigType
from kwire.errors import ErrorCode
from kwire.handlers.shared import needs
from kwire.handlers.shared.needs import Need
from kwire.wire.messages import alter_configs, incremental_alter_configs
from kwire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_cluster import DescribeClusterRequest
from kwire.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.wire.messages.describe_producers import DescribeProducersRequest
from kwire.wire.messages.describe_producers import TopicRequest as ProducersTopic
from kwire.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kwire.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from kwire.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kwire.wire.messages.list_config_resources import ListConfigResourcesRequest
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.messages.unregister_broker import UnregisterBrokerRequest
from kwire.wire.messages.update_features import UpdateFeaturesRequest
from kwire.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kwire.wire.schema import message_of
from kwire.wire.types import ZERO_UUID
from storage.batch.record_batch import Record, build_batch
from tests.support.node import NODE_ID, QuietNode
from tests.support.transactions import append_plain

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# A right in six states, and whether the request is accepted.
STATES = {"none": False, "other": False, "right": True, "deny": False, "prefix": True, "wildcard": True}


class Subject(NamedTuple):
    """The topic of a request. A group or a transactional id of a request has the same name."""

    name: str
    topic_id: bytes = ZERO_UUID


class AccessCase(NamedTuple):
    """A request that needs a right. `code` reads the error of a response; `accepted` is that of a client with it."""

    name: str
    version: int
    request: Callable[[Subject], Any]
    need: Need
    refusal: ErrorCode
    code: Callable[[Any], int]
    accepted: ErrorCode = ErrorCode.NONE
    given: tuple[Need, ...] = ()
    # The topic does not exist when the request is sent.
    is_new: bool = False

    @property
    def key(self) -> int:
        return message_of(type(self.request(Subject("t")))).key


async def subject_of(node: QuietNode, case: AccessCase, name: str) -> Subject:
    """Create the topic of a case, with three records."""
    if case.is_new:
        return Subject(name)
    topic = await node.create(name, 1)
    append_plain(topic.partitions[0], 3)
    return Subject(name, topic.topic_id)


async def set_rights(node: QuietNode, case: AccessCase, state: str, name: str) -> None:
    """Remove all rights, and give those of the state for a resource whose name is `name`."""
    await node.revoke()
    for need in case.given:
        await node.allow(need.operation, need.resource_type, _resource_name(need, name))
    operation, resource_type = case.need
    resource = _resource_name(case.need, name)
    match state:
        case "other" if resource_type is ResourceType.CLUSTER:
            await node.allow(operation, ResourceType.GROUP, resource)
        case "other":
            await node.allow(operation, resource_type, resource + "-other")
        case "right":
            await node.allow(operation, resource_type, resource)
        case "deny":
            await node.allow(operation, resource_type, resource)
            await node.deny(operation, resource_type, resource)
        case "prefix":
            await node.allow(operation, resource_type, resource[:4], pattern_type=PatternType.PREFIXED)
        case "wildcard":
            await node.allow(operation, resource_type, "*")


def _resource_name(need: Need, name: str) -> str:
    return CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else name


# --- requests


def _batch(count: int = 1, *, is_transactional: bool = False) -> memoryview:
    records = [Record(b"key", b"value", 0)] * count
    if not is_transactional:
        return memoryview(build_batch(records))
    return memoryview(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))


def _produce(subject: Subject) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=_batch())
    topic = TopicProduceData(name=subject.name, topic_id=subject.topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _produce_in_transaction(subject: Subject) -> ProduceRequest:
    request = _produce(subject)
    request.transactional_id = subject.name
    request.topic_data[0].partition_data[0].records = _batch(is_transactional=True)
    return request


def fetch_request(subject: Subject, **more: Any) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topic = FetchTopic(topic=subject.name, topic_id=subject.topic_id, partitions=[one])
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": [topic], "session_epoch": -1, **more})


def _fetch_by_follower(subject: Subject) -> FetchRequest:
    return fetch_request(subject, replica_state=ReplicaState(replica_id=2))


def _list_offsets(subject: Subject) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=subject.name, partitions=[one])])


def _search_offsets(subject: Subject) -> ListOffsetsRequest:
    request = _list_offsets(subject)
    request.topics[0].partitions[0].timestamp = 0
    return request


def _metadata(subject: Subject) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=subject.name)], allow_auto_topic_creation=True)


def _metadata_by_id(subject: Subject) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=subject.topic_id)])


def _metadata_of_cluster(subject: Subject) -> MetadataRequest:
    return MetadataRequest(topics=[], include_cluster_authorized_operations=True)


def _describe_topic_partitions(subject: Subject) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=subject.name)])


def _create_topics(subject: Subject) -> CreateTopicsRequest:
    new = CreatableTopic(name=subject.name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[new])


def _delete_topics(subject: Subject) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=subject.name)], timeout_ms=1000)


def _delete_topics_by_id(subject: Subject) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=subject.topic_id)], timeout_ms=1000)


def _delete_records(subject: Subject) -> DeleteRecordsRequest:
    one = DeleteRecordsPartition(partition_index=0, offset=-1)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=subject.name, partitions=[one])], timeout_ms=1000)


def _create_partitions(subject: Subject) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=subject.name, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)


def _offset_for_leader_epoch(subject: Subject) -> OffsetForLeaderEpochRequest:
    one = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=subject.name, partitions=[one])])


def _describe_configs(kind: ConfigType, name: str | None = None) -> Callable[[Subject], DescribeConfigsRequest]:
    def request(subject: Subject) -> DescribeConfigsRequest:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name or subject.name, configuration_keys=None
        )
        return DescribeConfigsRequest(resources=[resource])

    return request


def _alter_configs(
    kind: ConfigType, setting: str, value: str, name: str | None = None
) -> Callable[[Subject], alter_configs.AlterConfigsRequest]:
    def request(subject: Subject) -> alter_configs.AlterConfigsRequest:
        config = alter_configs.AlterableConfig(name=setting, value=value)
        resource = alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=subject.name if name is None else name, configs=[config]
        )
        return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)

    return request


def _incremental_alter_configs(
    kind: ConfigType, setting: str, value: str, name: str | None = None
) -> Callable[[Subject], incremental_alter_configs.IncrementalAlterConfigsRequest]:
    def request(subject: Subject) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
        config = incremental_alter_configs.AlterableConfig(name=setting, config_operation=0, value=value)
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=subject.name if name is None else name, configs=[config]
        )
        return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    return request


def _alter_replica_log_dirs(subject: Subject) -> AlterReplicaLogDirsRequest:
    topic = AlterReplicaLogDirTopic(name=subject.name, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/missing", topics=[topic])])


def _elect_leaders(subject: Subject) -> ElectLeadersRequest:
    return ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=subject.name, partitions=[0])])


def _alter_reassignments(subject: Subject) -> AlterPartitionReassignmentsRequest:
    one = ReassignablePartition(partition_index=0, replicas=[NODE_ID])
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=subject.name, partitions=[one])])


def _describe_quorum(subject: Subject) -> DescribeQuorumRequest:
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    return DescribeQuorumRequest(topics=[topic])


def _describe_producers(subject: Subject) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[ProducersTopic(name=subject.name, partition_indexes=[0])])


def _write_markers(subject: Subject) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic(name=subject.name, partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )
    return WriteTxnMarkersRequest(markers=[marker])


# --- the error of a response


def _of_request(response: Any) -> int:
    code: int = response.error_code
    return code


def _first(*path: str) -> Callable[[Any], int]:
    """Read the error code of the first element of the first element …, along the names of the arrays."""

    def code(response: Any) -> int:
        for name in path:
            (response,) = getattr(response, name)
        return _of_request(response)

    return code


def _no_operations(response: Any) -> int:
    """Return CLUSTER_REFUSED if the response has no operations on the cluster: Kafka has no error for that."""
    return CLUSTER_REFUSED if response.cluster_authorized_operations == 0 else 0


def _log_dirs(response: Any) -> int:
    assert bool(response.results) == (response.error_code == 0)
    return _of_request(response)


def _configs_of_created(response: Any) -> int:
    (topic,) = response.topics
    code: int = topic.topic_config_error_code
    assert (topic.error_code, topic.num_partitions) == (0, -1 if code else 1)
    assert bool(topic.configs) == (code == 0)
    return code


_PRODUCED = _first("responses", "partition_responses")
_FETCHED = _first("responses", "partitions")
_TOPICS = _first("topics")
_PARTITIONS = _first("topics", "partitions")
_RESULTS = _first("results")
_RESPONSES = _first("responses")
_BROKER = str(NODE_ID)

CASES = (
    AccessCase("produce", 11, _produce, needs.WRITE_TOPIC, TOPIC_REFUSED, _PRODUCED),
    AccessCase("produce by id", 13, _produce, needs.WRITE_TOPIC, TOPIC_REFUSED, _PRODUCED),
    AccessCase(
        "produce in a transaction",
        11,
        _produce_in_transaction,
        needs.WRITE_TRANSACTIONAL_ID,
        TRANSACTIONAL_ID_REFUSED,
        _PRODUCED,
        # There is no such transaction, which only a client with the right is told.
        accepted=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        given=(needs.WRITE_TOPIC,),
    ),
    AccessCase(
        "produce in a transaction to a topic",
        11,
        _produce_in_transaction,
        needs.WRITE_TOPIC,
        TOPIC_REFUSED,
        _PRODUCED,
        accepted=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        given=(needs.WRITE_TRANSACTIONAL_ID,),
    ),
    AccessCase("fetch", 12, fetch_request, needs.READ_TOPIC, TOPIC_REFUSED, _FETCHED),
    AccessCase("fetch by id", 13, fetch_request, needs.READ_TOPIC, TOPIC_REFUSED, _FETCHED),
    AccessCase(
        "fetch by a follower",
        15,
        _fetch_by_follower,
        needs.CLUSTER_ACTION,
        TOPIC_REFUSED,
        _FETCHED,
        accepted=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        given=(needs.READ_TOPIC,),
    ),
    AccessCase("list offsets", 7, _list_offsets, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _PARTITIONS),
    AccessCase("search offsets", 7, _search_offsets, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _PARTITIONS),
    *(
        AccessCase(f"metadata {version}", version, _metadata, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _TOPICS)
        for version in (0, 9, 13)
    ),
    AccessCase("metadata by id", 12, _metadata_by_id, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _TOPICS),
    AccessCase(
        "metadata creates with a right on the topic",
        9,
        _metadata,
        needs.CREATE_TOPIC,
        TOPIC_REFUSED,
        _TOPICS,
        given=(needs.DESCRIBE_TOPIC,),
        is_new=True,
    ),
    AccessCase(
        "metadata creates with a right on the cluster",
        9,
        _metadata,
        needs.CREATE_CLUSTER,
        TOPIC_REFUSED,
        _TOPICS,
        given=(needs.DESCRIBE_TOPIC,),
        is_new=True,
    ),
    AccessCase(
        "metadata of the cluster", 10, _metadata_of_cluster, needs.DESCRIBE_CLUSTER, CLUSTER_REFUSED, _no_operations
    ),
    AccessCase(
        "describe topic partitions", 0, _describe_topic_partitions, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _TOPICS
    ),
    AccessCase(
        "create topics, right on the topic", 5, _create_topics, needs.CREATE_TOPIC, TOPIC_REFUSED, _TOPICS, is_new=True
    ),
    AccessCase(
        "create topics, right on the cluster",
        5,
        _create_topics,
        needs.CREATE_CLUSTER,
        TOPIC_REFUSED,
        _TOPICS,
        is_new=True,
    ),
    AccessCase(
        "configs of created topics",
        7,
        _create_topics,
        needs.DESCRIBE_TOPIC_CONFIGS,
        TOPIC_REFUSED,
        _configs_of_created,
        given=(needs.CREATE_CLUSTER,),
        is_new=True,
    ),
    AccessCase("delete topics", 6, _delete_topics, needs.DELETE_TOPIC, TOPIC_REFUSED, _RESPONSES),
    AccessCase("delete topics by id", 6, _delete_topics_by_id, needs.DELETE_TOPIC, TOPIC_REFUSED, _RESPONSES),
    AccessCase(
        "delete topics, right on the cluster", 6, _delete_topics, needs.DELETE_CLUSTER, TOPIC_REFUSED, _RESPONSES
    ),
    AccessCase(
        "delete topics by id, right on the cluster",
        6,
        _delete_topics_by_id,
        needs.DELETE_CLUSTER,
        TOPIC_REFUSED,
        _RESPONSES,
    ),
    AccessCase("delete records", 2, _delete_records, needs.DELETE_TOPIC, TOPIC_REFUSED, _PARTITIONS),
    AccessCase("create partitions", 3, _create_partitions, needs.ALTER_TOPIC, TOPIC_REFUSED, _RESULTS),
    AccessCase(
        "offset for leader epoch", 4, _offset_for_leader_epoch, needs.DESCRIBE_TOPIC, TOPIC_REFUSED, _PARTITIONS
    ),
    AccessCase(
        "offset for leader epoch, for brokers",
        4,
        _offset_for_leader_epoch,
        needs.CLUSTER_ACTION,
        TOPIC_REFUSED,
        _PARTITIONS,
    ),
    AccessCase(
        "describe configs of a topic",
        4,
        _describe_configs(ConfigType.TOPIC),
        needs.DESCRIBE_TOPIC_CONFIGS,
        TOPIC_REFUSED,
        _RESULTS,
    ),
    AccessCase(
        "describe configs of a group",
        4,
        _describe_configs(ConfigType.GROUP),
        needs.DESCRIBE_GROUP_CONFIGS,
        GROUP_REFUSED,
        _RESULTS,
    ),
    *(
        AccessCase(
            f"describe configs of {kind.name}",
            4,
            _describe_configs(kind, _BROKER),
            needs.DESCRIBE_CLUSTER_CONFIGS,
            CLUSTER_REFUSED,
            _RESULTS,
        )
        for kind in (ConfigType.BROKER, ConfigType.BROKER_LOGGER, ConfigType.CLIENT_METRICS)
    ),
    *(
        AccessCase(f"{verb} of {kind.name}", version, make(kind, *setting), need, refusal, _RESPONSES)
        for verb, version, make in (
            ("alter configs", 2, _alter_configs),
            ("incremental alter configs", 1, _incremental_alter_configs),
        )
        for kind, setting, need, refusal in (
            (ConfigType.TOPIC, ("retention.ms", "1000"), needs.ALTER_TOPIC_CONFIGS, TOPIC_REFUSED),
            (
                ConfigType.GROUP,
                ("consumer.session.timeout.ms", "50000"),
                needs.ALTER_GROUP_CONFIGS,
                GROUP_REFUSED,
            ),
            (
                ConfigType.BROKER,
                ("log.retention.ms", "1000", ""),
                needs.ALTER_CLUSTER_CONFIGS,
                CLUSTER_REFUSED,
            ),
            (ConfigType.CLIENT_METRICS, ("interval.ms", "1000"), needs.ALTER_CLUSTER_CONFIGS, CLUSTER_REFUSED),
        )
    ),
    AccessCase(
        "levels of loggers",
        1,
        _incremental_alter_configs(ConfigType.BROKER_LOGGER, "kwire.handlers", "INFO", _BROKER),
        needs.ALTER_CLUSTER_CONFIGS,
        CLUSTER_REFUSED,
        _RESPONSES,
    ),
    AccessCase(
        "list config resources",
        1,
        lambda subject: ListConfigResourcesRequest(resource_types=[]),
        needs.DESCRIBE_CLUSTER_CONFIGS,
        CLUSTER_REFUSED,
        _of_request,
    ),
    AccessCase(
        "describe log dirs",
        5,
        lambda subject: DescribeLogDirsRequest(topics=None),
        needs.DESCRIBE_CLUSTER,
        CLUSTER_REFUSED,
        _log_dirs,
    ),
    AccessCase(
        "alter replica log dirs",
        2,
        _alter_replica_log_dirs,
        needs.ALTER_CLUSTER,
        CLUSTER_REFUSED,
        _first("results", "partitions"),
        accepted=ErrorCode.LOG_DIR_NOT_FOUND,
    ),
    *(
        AccessCase(
            f"elect leaders {version}",
            version,
            _elect_leaders,
            needs.ALTER_CLUSTER,
            CLUSTER_REFUSED,
            _first("replica_election_results", "partition_result"),
            accepted=ErrorCode.ELECTION_NOT_NEEDED,
        )
        for version in (0, 2)
    ),
    AccessCase("alter reassignments", 1, _alter_reassignments, needs.ALTER_CLUSTER, CLUSTER_REFUSED, _of_request),
    AccessCase(
        "list reassignments",
        0,
        lambda subject: ListPartitionReassignmentsRequest(),
        needs.DESCRIBE_CLUSTER,
        CLUSTER_REFUSED,
        _of_request,
    ),
    AccessCase("describe quorum", 2, _describe_quorum, needs.DESCRIBE_CLUSTER, CLUSTER_REFUSED, _of_request),
    AccessCase(
        "update features",
        2,
        lambda subject: UpdateFeaturesRequest(feature_updates=[]),
        needs.ALTER_CLUSTER,
        CLUSTER_REFUSED,
        _of_request,
        accepted=ErrorCode.NONE,
    ),
    AccessCase(
        "operations on the cluster",
        2,
        lambda subject: DescribeClusterRequest(include_cluster_authorized_operations=True),
        needs.DESCRIBE_CLUSTER,
        CLUSTER_REFUSED,
        _no_operations,
    ),
    AccessCase("describe producers", 0, _describe_producers, needs.READ_TOPIC, TOPIC_REFUSED, _PARTITIONS),
    AccessCase(
        "unregister broker",
        0,
        lambda subject: UnregisterBrokerRequest(broker_id=NODE_ID),
        needs.ALTER_CLUSTER,
        CLUSTER_REFUSED,
        _of_request,
        accepted=ErrorCode.INVALID_REQUEST,
    ),
    *(
        AccessCase(
            f"write markers with {need.operation.name}",
            1,
            _write_markers,
            need,
            CLUSTER_REFUSED,
            _first("markers", "topics", "partitions"),
        )
        for need in (needs.ALTER_CLUSTER, needs.CLUSTER_ACTION)
    ),
)
