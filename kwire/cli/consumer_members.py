"""Describes the members of a consumer-protocol group (KIP-848) with kwire's own codec.

The other commands use kafka-python, which does not support ConsumerGroupDescribe.
"""

from kwire.cli.client_settings import ClientSettings
from kwire.cli.kafka_connection import KafkaConnection
from kwire.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    Member,
)

VERSION = 1


def consumer_members(settings: ClientSettings, group_id: str) -> list[Member]:
    """Return the members of one group. Raises Unreachable, or ValueError if the server answers with an error."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    with KafkaConnection(settings) as connection:
        (group,) = connection.request(CONSUMER_GROUP_DESCRIBE, VERSION, request).groups
    if group.error_code:
        raise ValueError(f"{group_id}: {group.error_message or f'error {group.error_code}'}")
    members: list[Member] = group.members
    return members
