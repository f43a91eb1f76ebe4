"""Creates and deletes the topic of a benchmark."""

from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.errors import ServerError
from kwire.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS = 30_000
SERVER_DEFAULT = -1


def create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """Create a topic, and wait until all its partitions have leaders."""
    wanted = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=SERVER_DEFAULT, assignments=[], configs=[]
    )
    response = cluster.ask_any(CREATE_TOPICS, CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
    for result in response.topics:
        if result.error_code:
            raise ServerError(f"the topic {topic} cannot be created", result.error_code, result.error_message)
    # Brokers learn of a new topic a moment later.
    cluster.load_topics([topic], may_create=True)


def delete_topic(cluster: Cluster, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=TIMEOUT_MS)
    for result in cluster.ask_any(DELETE_TOPICS, request).responses:
        if result.error_code:
            raise ServerError(f"the topic {topic} is left", result.error_code, result.error_message)
