"""The total lag of many groups, with few requests: one for every GROUPS_PER_REQUEST groups, and one for each leader.

The lag in seconds is missing here: it needs a record of every partition (`kwire group describe`).
"""

from collections.abc import Mapping, Sequence

from kwire.cli.connection.errors import NotSupported
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.connection.offsets import LATEST, offsets_at
from kwire.cli.group.members import SHARE
from kwire.cli.group.offsets import VERSION_MAX
from kwire.wire.messages.list_groups import ListedGroup
from kwire.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup

GROUPS_PER_REQUEST = 50
# The first version with several groups in one request.
SEVERAL_GROUPS_VERSION = 8

Offsets = Mapping[TopicPartition, int]


def total_lags(client: KafkaClient, groups: Mapping[KafkaConnection, Sequence[ListedGroup]]) -> dict[str, int]:
    """Return the number of records that each group has still to read, by group id.

    `groups` has the groups of each coordinator. Partitions whose end is not known do not count. Groups whose offsets
    the client may not read, or that the server does not have yet, are missing; so are share groups, which have no
    committed offsets, and all groups of servers before Kafka 3.0.
    """
    committed: dict[str, Offsets] = {}
    for coordinator, listed in groups.items():
        ids = [one.group_id for one in listed if one.group_type.lower() != SHARE]
        for first in range(0, len(ids), GROUPS_PER_REQUEST):
            committed |= _committed(coordinator, ids[first : first + GROUPS_PER_REQUEST])
    ends = offsets_at(client, {one: LATEST for offsets in committed.values() for one in offsets}, skips_missing=True)
    return {
        group_id: sum(max(0, ends[one] - offset) for one, offset in offsets.items() if one in ends)
        for group_id, offsets in committed.items()
    }


def _committed(coordinator: KafkaConnection, group_ids: Sequence[str]) -> dict[str, Offsets]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=None) for one in group_ids])
    try:
        response = coordinator.request(
            OFFSET_FETCH, request, version_min=SEVERAL_GROUPS_VERSION, version_max=VERSION_MAX
        )
    except NotSupported:
        return {}
    return {
        group.group_id: {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in group.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }
        for group in response.groups
        if not group.error_code
    }
