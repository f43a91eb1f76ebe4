"""RemoteTopicCommands: creates, extends and deletes topics of a cluster.

Settings, numbers of partitions and names are checked by the cluster, whose errors are passed on. Topics of the event
store have schemas, which a cluster does not know; their commands are not here.
"""

from collections.abc import Mapping

from kwire.access.audit.entries import NO_AUDIT, TOPIC, Audit
from kwire.broker.topics.names import check_name
from kwire.broker.topics.topics import protected_topic
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import CLUSTER_DEFAULT
from kwire.streams.remote.agreement import agreement, await_deletion
from kwire.streams.remote.directory import RemoteTopic, RemoteTopics
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms.rooms import RemoteRooms


class RemoteTopicCommands:
    """Every change is sent once. If its outcome is not known, it raises KafkaError with NETWORK_EXCEPTION.

    `partition_count` is that of topics that are created because somebody writes to them.
    """

    def __init__(
        self,
        logs: RemoteLogs,
        topics: RemoteTopics,
        rooms: RemoteRooms,
        partition_count: int = CLUSTER_DEFAULT,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._logs = logs
        self._cluster = logs.cluster
        self._admin = logs.admin
        self._topics = topics
        self._rooms = rooms
        self._partition_count = partition_count
        self._audit = audit

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], replication_factor: int | None = None
    ) -> None:
        check_name(name)
        self._check_changeable(name)
        factor = CLUSTER_DEFAULT if replication_factor is None else replication_factor
        await self._admin.create_topic(name, partition_count, configs, factor)
        facts = {"partitions": partition_count, "settings": sorted(configs)}
        self._audit.changed("topic.created", TOPIC, name, facts)
        await self._await_partitions(name, 1, "created")

    async def create_if_missing(self, name: str) -> None:
        try:
            await self.create(name, self._partition_count, {})
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self._await_partitions(name, 1, "created")

    async def add_partitions(self, name: str, partition_count: int) -> None:
        await self._topic_to_change(name)
        await self._admin.add_partitions(name, partition_count)
        self._audit.changed("topic.extended", TOPIC, name, {"partitions": partition_count})
        await self._await_partitions(name, partition_count, "extended")

    async def delete(self, name: str) -> None:
        topic = await self._topic_to_change(name)
        try:
            if topic.is_room:
                if not await self._rooms.delete_topic(topic.stream(), lambda: True):
                    raise _no_topic(name)
            else:
                await self._delete(topic)
        finally:
            self._topics.forget(name)

    async def _delete(self, topic: RemoteTopic) -> None:
        logs = self._logs.logs_of(topic.name)
        # No event is acknowledged and then deleted with its topic.
        for one in logs:
            one.is_being_deleted = True
        try:
            await self._admin.delete_topic(topic.name, topic.topic_id)
        except BaseException:
            for one in logs:
                one.is_being_deleted = False
            raise
        self._audit.changed("topic.deleted", TOPIC, topic.name)
        self._logs.drop(topic.name)
        await await_deletion(self._cluster, topic.name, topic.topic_id)

    def _check_changeable(self, name: str) -> None:
        if self._topics.marks.is_protected(name):
            raise protected_topic(name)

    async def _topic_to_change(self, name: str) -> RemoteTopic:
        self._check_changeable(name)
        topic = await self._topics.find(name)
        if topic is None:
            raise _no_topic(name)
        return topic

    async def _await_partitions(self, name: str, count: int, change: str) -> None:
        """Wait until a topic has this number of partitions. Raises LEADER_NOT_AVAILABLE if that takes too long."""
        self._topics.forget(name)

        async def has_partitions() -> bool:
            try:
                topic = await self._topics.ask(name)
            except KafkaError as error:
                if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                return False
            return topic is not None and topic.partition_count >= count

        if not await agreement(self._cluster, has_partitions):
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"topic {name!r} was {change}, but its partitions have no leaders yet: try again",
            )


def _no_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
