"""The partitions that users name: TOPIC, or TOPIC:PARTITION,PARTITION,…"""

from collections.abc import Iterable

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.framework.errors import UsageError

METAVAR = "TOPIC[:PARTITION,...]"


def named_partitions(client: KafkaClient, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that texts name, each once. Raises UsageError, or Refused if one does not exist."""
    chosen: dict[TopicPartition, None] = {}
    for text in texts:
        name, _, indexes = text.partition(":")
        known = partitions_of(client, name)
        asked = {partition_number(index) for index in indexes.split(",")} if indexes else known
        if not asked <= known:
            raise ValueError(f"topic {name} has no partition {min(asked - known)}")
        chosen.update((TopicPartition(name, index), None) for index in sorted(asked))
    return list(chosen)


def partitions_of(client: KafkaClient, topic: str) -> set[int]:
    """Return the numbers of a topic's partitions. Raises Refused."""
    (found,) = client.metadata([topic]).topics
    check(f"topic {topic}", found.error_code)
    return {one.partition_index for one in found.partitions}


def all_partitions(client: KafkaClient) -> list[TopicPartition]:
    """Return the partitions of all topics, also of internal ones."""
    return sorted(
        TopicPartition(topic.name or "", one.partition_index)
        for topic in client.metadata().topics
        for one in topic.partitions
    )


def partition_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"not a partition number: {text!r}")
    return int(text)
