"""The members of groups and what they read, in every group protocol.

Classic groups, consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) have an API each. A row
has the same fields for all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.wire.codec import decode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment
from kwire.wire.errors import WireError
from kwire.wire.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from kwire.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest

CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"
VERSION_BYTES = 2
ASSIGNMENT_VERSION = 3
# How a member of a consumer group is connected.
_MEMBER_TYPES = {0: "classic", 1: "consumer"}


def member_rows(client: KafkaClient, group_id: str, group_type: str) -> list[dict[str, Any]]:
    """Return the facts about each member of a group: who it is and which partitions it has. Raises Refused."""
    rows_of = {CONSUMER: _consumer_rows, SHARE: _share_rows, STREAMS: _streams_rows}.get(
        group_type.lower(), _classic_rows
    )
    return sorted(rows_of(client, group_id), key=lambda row: (row["client"], row["member"]))


def assignment_text(topics: Mapping[str, Sequence[int]]) -> str | None:
    """Return an assignment as text, such as `orders:0,1,2`."""
    shown = (f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(topics.items()))
    return " ".join(shown) or None


def _row(
    member: Any, instance: str | None, epoch: int | None, protocol: str, read: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": instance,
        "client": member.client_id,
        "host": member.client_host,
        "epoch": epoch,
        "protocol": protocol,
        "assignment": assignment_text(read),
        "partitions": {topic: sorted(indexes) for topic, indexes in sorted(read.items())},
    }


def _classic_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    request = DescribeGroupsRequest(groups=[group_id])
    (group,) = client.ask_coordinator(group_id, DESCRIBE_GROUPS, request).groups
    check(f"group {group_id}", group.error_code, group.error_message)
    is_consumer = group.protocol_type == CONSUMER
    return [
        _row(
            one,
            one.group_instance_id,
            None,
            group.protocol_data or group.protocol_type,
            _classic_assignment(bytes(one.member_assignment)) if is_consumer else {},
        )
        for one in group.members
    ]


def _consumer_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, CONSUMER_GROUP_DESCRIBE, request).groups
    check(f"group {group_id}", group.error_code, group.error_message)
    return [
        _row(
            one,
            one.instance_id,
            one.member_epoch,
            _MEMBER_TYPES.get(one.member_type, CONSUMER),
            _by_topic(one.assignment.topic_partitions),
        )
        for one in group.members
    ]


def _share_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    # Imported here and below, because few servers have such groups.
    from kwire.wire.messages.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest

    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, SHARE_GROUP_DESCRIBE, request).groups
    check(f"group {group_id}", group.error_code, group.error_message)
    return [
        _row(one, None, one.member_epoch, SHARE, _by_topic(one.assignment.topic_partitions)) for one in group.members
    ]


def _streams_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    from kwire.wire.messages.streams_group_describe import STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, STREAMS_GROUP_DESCRIBE, request).groups
    check(f"group {group_id}", group.error_code, group.error_message)
    # A task reads one partition of each source topic of its subtopology.
    subtopologies = group.topology.subtopologies if group.topology is not None else None
    sources = {one.subtopology_id: one.source_topics for one in subtopologies or ()}
    rows = []
    for one in group.members:
        read: dict[str, set[int]] = {}
        for task in one.assignment.active_tasks:
            for topic in sources.get(task.subtopology_id, ()):
                read.setdefault(topic, set()).update(task.partitions)
        rows.append(_row(one, one.instance_id, one.member_epoch, STREAMS, read))
    return rows


def _by_topic(held: Iterable[Any]) -> dict[str, list[int]]:
    return {one.topic_name: list(one.partitions) for one in held}


def _classic_assignment(data: bytes) -> dict[str, list[int]]:
    """Return the assignment that a leader gave to a member. It is empty if it is not in Kafka's format."""
    version = int.from_bytes(data[:VERSION_BYTES])
    try:
        found = decode_message(ConsumerProtocolAssignment, min(version, ASSIGNMENT_VERSION), data[VERSION_BYTES:])
    except WireError:
        return {}
    return {one.topic: list(one.partitions) for one in found.assigned_partitions}
