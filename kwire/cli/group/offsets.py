"""The committed offsets of groups: read and changed."""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup

# Later versions have topic ids instead of names.
VERSION_MAX = 9
# The first version in which a missing list of topics means all topics.
ALL_TOPICS_VERSION = 2


class Committed(NamedTuple):
    """A committed offset, and the text that the consumer stored with it."""

    offset: int
    metadata: str | None


def committed_offsets(client: KafkaClient, group_id: str) -> dict[TopicPartition, Committed]:
    """Return all committed offsets of a group, sorted by partition. Raises Refused."""
    request = OffsetFetchRequest(
        group_id=group_id, topics=None, groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    )
    response = client.ask_coordinator(
        group_id, OFFSET_FETCH, request, version_min=ALL_TOPICS_VERSION, version_max=VERSION_MAX
    )
    group = response.groups[0] if response.groups else response
    check(f"group {group_id}", group.error_code)
    found = {}
    for topic in group.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            check(f"group {group_id}, partition {partition}", one.error_code)
            if one.committed_offset >= 0:
                found[partition] = Committed(one.committed_offset, one.metadata or None)
    return dict(sorted(found.items()))


def commit_offsets(
    client: KafkaClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit offsets for a group without members. Return the error codes of the partitions that failed."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    response = client.ask_coordinator(group_id, OFFSET_COMMIT, request, version_max=VERSION_MAX)
    return {
        TopicPartition(topic.name, one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
        if one.error_code
    }
