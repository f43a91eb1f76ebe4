"""RemoteTopicCommands: the commands of `TopicCommands` that are Kafka's own, for topics of a cluster.

Topics of the event store have schemas, which a cluster does not know; their commands are not here.
"""

from collections.abc import Mapping

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin


class RemoteTopicCommands:
    """Every command is sent once. If its outcome is not known, it raises KafkaError with NETWORK_EXCEPTION."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        await self._admin.create_topic(name, partition_count, configs)

    async def create_if_missing(self, name: str) -> None:
        try:
            await self._admin.create_topic(name)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def add_partitions(self, name: str, partition_count: int) -> None:
        await self._admin.add_partitions(name, partition_count)

    async def delete(self, name: str) -> None:
        await self._admin.delete_topic(name)
