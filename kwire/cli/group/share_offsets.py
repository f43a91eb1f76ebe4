"""The offsets of share groups (KIP-932). Only servers that have share groups are asked."""

from typing import Any

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, offsets_at
from kwire.wire.messages.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)


def share_offset_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    """Return the start offset, the end and the lag of each partition of a share group. Raises Refused."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    (group,) = client.ask_coordinator(group_id, DESCRIBE_SHARE_GROUP_OFFSETS, request).groups
    check(f"group {group_id}", group.error_code, group.error_message)
    found = {
        TopicPartition(topic.topic_name, one.partition_index): one
        for topic in group.topics
        for one in topic.partitions
        if not one.error_code and one.start_offset >= 0
    }
    first = offsets_at(client, dict.fromkeys(found, EARLIEST))
    ends = offsets_at(client, dict.fromkeys(found, LATEST))
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": one.start_offset,
            "first": first[partition],
            "end": ends[partition],
            "lag": one.lag if one.lag >= 0 else max(0, ends[partition] - one.start_offset),
            # Records of a share group are not read in order, so the oldest unread record is not known.
            "lag_seconds": None,
            "metadata": None,
        }
        for partition, one in sorted(found.items())
    ]
