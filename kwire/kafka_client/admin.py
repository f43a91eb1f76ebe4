"""Admin: creates, changes and deletes topics of a cluster. All methods raise KafkaError.

A request whose connection is lost is not sent again: it may have been carried out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsTopic
from kwire.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from kwire.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

# How long the cluster may take for one change.
CHANGE_SECONDS: Final = 30.0
# The number of partitions or replicas that the cluster chooses (KIP-464, from Apache Kafka 2.4 on).
CLUSTER_DEFAULT: Final = -1
_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_CHANGE_MS: Final = int(CHANGE_SECONDS * 1000)


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

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
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_CHANGE_MS)
        response = await self._cluster.request_controller(CREATE_TOPICS, request, wait_seconds=CHANGE_SECONDS)
        _check(name, response.topics[0])

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_CHANGE_MS)
        response = await self._cluster.request_controller(DELETE_TOPICS, request, wait_seconds=CHANGE_SECONDS)
        _check(name, response.responses[0])

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
        response = await self._cluster.request_any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
        _check(name, response.results[0])
        return {one.name: one.value for one in response.results[0].configs}

    async def configs_of_topics(
        self, names: Sequence[str], keys: Sequence[str]
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Return some settings of several topics. Topics whose settings cannot be read are left out."""
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(keys))
            for name in names
        ]
        response = await self._cluster.request_any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
        return {
            result.resource_name: {one.name: one.value for one in result.configs}
            for result in response.results
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
        response = await self._cluster.request_controller(INCREMENTAL_ALTER_CONFIGS, request)
        _check(name, response.responses[0])

    async def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete the records before an offset, and return the first offset that can be read after that."""
        asked = DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
        )
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=_CHANGE_MS)
        response = await self._cluster.request_leader(name, partition, DELETE_RECORDS, request)
        deleted = response.topics[0].partitions[0]
        _check(name, deleted)
        return int(deleted.low_watermark)


def _check(name: str, result: Any) -> None:
    if result.error_code:
        raise refusal(f"topic {name!r}", result.error_code, getattr(result, "error_message", None))
