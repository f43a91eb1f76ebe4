"""The handlers of a bridge, one for each API that it serves as JSON.

A request of an API that has no handler here is refused. Every handler checks the rights of the client before anything
is read or changed, because all clients share the bridge's user of the cluster. The needs are those of a server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kwire.bridge.kafka_requests import (
    cluster,
    configs,
    groups,
    offsets,
    partitions,
    topic_changes,
    topics,
    transactions,
)
from kwire.handlers import (
    HANDLERS,
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from kwire.handlers.shared.context import Handler

Handle = Callable[[Any, Any], Any | Awaitable[Any]]

# What the bridge has in its own metadata store: the handlers of a server.
_OWN: Final[Mapping[str, Handle]] = {
    "DescribeAcls": describe_acls.handle,
    "CreateAcls": create_acls.handle,
    "DeleteAcls": delete_acls.handle,
    "DescribeUserScramCredentials": describe_user_scram_credentials.handle,
    "AlterUserScramCredentials": alter_user_scram_credentials.handle,
    "DescribeClientQuotas": describe_client_quotas.handle,
    "AlterClientQuotas": alter_client_quotas.handle,
}
# What the cluster has. These handlers send it the parts of a request for which the client has the rights.
_FORWARDED: Final[Mapping[str, Handle]] = {
    "DescribeCluster": cluster.describe_cluster,
    "DescribeQuorum": cluster.describe_quorum,
    "ListPartitionReassignments": cluster.list_partition_reassignments,
    "Metadata": topics.metadata,
    "DescribeTopicPartitions": topics.describe_topic_partitions,
    "CreateTopics": topic_changes.create_topics,
    "DeleteTopics": topic_changes.delete_topics,
    "CreatePartitions": topic_changes.create_partitions,
    "DeleteRecords": partitions.delete_records,
    "ListOffsets": partitions.list_offsets,
    "OffsetForLeaderEpoch": partitions.offset_for_leader_epoch,
    "DescribeProducers": partitions.describe_producers,
    "ListConfigResources": configs.list_config_resources,
    "DescribeConfigs": configs.describe_configs,
    "IncrementalAlterConfigs": configs.incremental_alter_configs,
    "AlterConfigs": configs.alter_configs,
    "ListGroups": groups.list_groups,
    "DescribeGroups": groups.describe_groups,
    "ConsumerGroupDescribe": groups.consumer_group_describe,
    "LeaveGroup": groups.leave_group,
    "DeleteGroups": groups.delete_groups,
    "OffsetFetch": offsets.offset_fetch,
    "OffsetCommit": offsets.offset_commit,
    "OffsetDelete": offsets.offset_delete,
    "ListTransactions": transactions.list_transactions,
    "DescribeTransactions": transactions.describe_transactions,
    "InitProducerId": transactions.init_producer_id,
}

_HANDLES: Final = {**_OWN, **_FORWARDED}

BRIDGE_HANDLERS: Final[Mapping[int, Handler]] = {
    key: Handler(one.api, _HANDLES[one.api.name], one.needs)
    for key, one in HANDLERS.items()
    if one.api.name in _HANDLES
}
