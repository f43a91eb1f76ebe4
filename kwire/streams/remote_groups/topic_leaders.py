"""TopicLeaders: asks a cluster for the partitions of topics and their leaders."""

from collections.abc import Iterable, Mapping

from kwire.kafka_client.cluster import TOPICS_PER_REQUEST, Cluster
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse


class TopicLeaders:
    """Groups read topics that this process does not use, so nothing is remembered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def of(self, topics: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        """Return the ids of the leaders by topic and partition, without topics that do not exist. Raises KafkaError."""
        names = sorted(topics)
        found: dict[str, Mapping[int, int]] = {}
        for first in range(0, len(names), TOPICS_PER_REQUEST):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names[first : first + TOPICS_PER_REQUEST]],
                allow_auto_topic_creation=False,
            )
            response: MetadataResponse = await self._cluster.request_any(METADATA, request)
            for topic in response.topics:
                if topic.name is not None and not topic.error_code:
                    found[topic.name] = {one.partition_index: one.leader_id for one in topic.partitions}
        return found

    async def counts_of(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the numbers of partitions of the topics that exist. Raises KafkaError."""
        return {name: len(leaders) for name, leaders in (await self.of(topics)).items()}
