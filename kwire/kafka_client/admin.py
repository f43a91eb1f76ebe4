"""Admin: creates, changes and deletes topics of a cluster. All methods raise KafkaError.

A request whose connection is lost is not sent again: it may have been carried out. Topics that are created, or whose
settings are asked for, at the same time are in one request, so processes share one Admin for each cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.batched_requests import BatchedRequests
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsTopic
from kwire.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kwire.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from kwire.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.wire.types import ZERO_UUID

# How long the cluster may take for one change.
CHANGE_SECONDS: Final = 30.0
# The partitions of the topics of one CreateTopics request. Apache Kafka refuses requests that need more than 10,000
# records of its metadata log.
PARTITIONS_PER_CREATION_MAX: Final = 100
# A topic with longer settings has a request of its own, which a broker may answer by closing the connection.
SHARED_CONFIGS_BYTES_MAX: Final = 4096
# The topics of one DescribeConfigs request.
TOPICS_PER_DESCRIPTION_MAX: Final = 100
# The first version of DeleteTopics that takes topic ids (Apache Kafka 2.8).
FIRST_DELETION_BY_ID: Final = 6
# The number of partitions or replicas that the cluster chooses (KIP-464, from Apache Kafka 2.4 on).
CLUSTER_DEFAULT: Final = -1
_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_CHANGE_MS: Final = int(CHANGE_SECONDS * 1000)


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._creations = BatchedRequests(self._create_topics, PARTITIONS_PER_CREATION_MAX)
        self._descriptions = BatchedRequests(self._describe_topics, TOPICS_PER_DESCRIPTION_MAX)

    async def create_topic(
        self,
        name: str,
        partition_count: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = CLUSTER_DEFAULT,
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        size_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in (configs or {}).items())
        is_alone = size_bytes > SHARED_CONFIGS_BYTES_MAX
        weight = PARTITIONS_PER_CREATION_MAX if is_alone else max(1, partition_count)
        _check(name, await self._creations.ask(name, topic, weight))

    async def _create_topics(self, topics: Sequence[CreatableTopic]) -> Mapping[str, CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=_CHANGE_MS)
        response = await self._cluster.request_controller(CREATE_TOPICS, request, wait_seconds=CHANGE_SECONDS)
        return {result.name: result for result in response.topics}

    async def delete_topic(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """Delete a topic. With a `topic_id`, a topic that was created again under the name is not deleted.

        Then it raises KafkaError with UNKNOWN_TOPIC_OR_PARTITION, as for a topic that does not exist.
        """
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_CHANGE_MS)
        link = await self._cluster.controller_link(Purpose.CHANGE)
        if topic_id != ZERO_UUID:
            if (await link.connection()).versions.has(DELETE_TOPICS, FIRST_DELETION_BY_ID):
                request.topics = [DeleteTopicState(name=None, topic_id=topic_id)]
            else:
                await self._cluster.refresh([name])
                self.check_id(name, topic_id)
        response = await link.request(DELETE_TOPICS, request, wait_seconds=CHANGE_SECONDS)
        deleted = response.responses[0]
        if deleted.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise _other_topic(name)
        _check(name, deleted)

    def check_id(self, name: str, topic_id: bytes) -> None:
        """Raise KafkaError with UNKNOWN_TOPIC_OR_PARTITION unless the last metadata have a topic with this id.

        Call it before a change that has only the name, after `Cluster.refresh`.
        """
        if not self._cluster.metadata.has(name, topic_id):
            raise _other_topic(name)

    async def add_partitions(self, name: str, partition_count: int) -> None:
        """Increase the number of partitions to `partition_count`."""
        topic = CreatePartitionsTopic(name=name, count=partition_count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=_CHANGE_MS, validate_only=False)
        response = await self._cluster.request_controller(CREATE_PARTITIONS, request, wait_seconds=CHANGE_SECONDS)
        _check(name, response.results[0])

    async def topic_configs(self, name: str, keys: Sequence[str] | None = None) -> dict[str, str | None]:
        """Return the settings of a topic, with the cluster's defaults. Secrets are None."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        result = await self._descriptions.ask(name, resource)
        _check(name, result)
        return {one.name: one.value for one in result.configs}

    async def _describe_topics(
        self, resources: Sequence[DescribeConfigsResource]
    ) -> Mapping[str, DescribeConfigsResult]:
        request = DescribeConfigsRequest(resources=list(resources))
        response = await self._cluster.request_any(DESCRIBE_CONFIGS, request)
        return {result.resource_name: result for result in response.results}

    async def configs_of_topics(
        self, names: Sequence[str], keys: Sequence[str]
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Return some settings of several topics. Topics whose settings cannot be read are left out."""
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(keys))
            for name in names
        ]
        results = await self._describe_topics(resources)
        return {
            name: {one.name: one.value for one in result.configs}
            for name, result in results.items()
            if not result.error_code
        }

    async def change_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic. None removes a setting, so that the cluster's default applies."""
        configs = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await self._cluster.request_controller(
            INCREMENTAL_ALTER_CONFIGS, request, wait_seconds=CHANGE_SECONDS
        )
        _check(name, response.responses[0])

    async def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete the records before an offset, and return the first offset that can be read after that."""
        asked = DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
        )
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=_CHANGE_MS)
        response = await self._cluster.request_leader(
            name, partition, DELETE_RECORDS, request, Purpose.CHANGE, wait_seconds=CHANGE_SECONDS
        )
        deleted = response.topics[0].partitions[0]
        _check(name, deleted)
        return int(deleted.low_watermark)


def _other_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was deleted, or created again, meanwhile")


def _check(name: str, result: Any) -> None:
    if result.error_code:
        raise refusal(f"topic {name!r}", result.error_code, getattr(result, "error_message", None))
