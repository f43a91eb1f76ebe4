"""One file per Kafka API: (context, request) -> response, or an awaitable of it. `HANDLERS` is the one list.

What the server advertises, serves and documents is derived from `HANDLERS`. A handler's synchronous part runs before
the next request of the same connection is looked at; record views in the request are only valid during it.
"""

from kwire.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    unregister_broker,
    update_features,
)
from kwire.handlers.context import Handler
from kwire.handlers.repeated_produce import RepeatedProduce
from kwire.wire import messages

HANDLERS: dict[int, Handler] = {
    handler.api.key: handler
    for handler in (
        Handler(messages.PRODUCE, produce.handle, RepeatedProduce),
        Handler(messages.FETCH, fetch.handle),
        Handler(messages.LIST_OFFSETS, list_offsets.handle),
        Handler(messages.METADATA, metadata.handle),
        Handler(messages.OFFSET_COMMIT, offset_commit.handle),
        Handler(messages.OFFSET_FETCH, offset_fetch.handle),
        Handler(messages.FIND_COORDINATOR, find_coordinator.handle),
        Handler(messages.JOIN_GROUP, join_group.handle),
        Handler(messages.HEARTBEAT, heartbeat.handle),
        Handler(messages.LEAVE_GROUP, leave_group.handle),
        Handler(messages.SYNC_GROUP, sync_group.handle),
        Handler(messages.API_VERSIONS, api_versions.handle),
        Handler(messages.CREATE_TOPICS, create_topics.handle),
        Handler(messages.DELETE_TOPICS, delete_topics.handle),
        Handler(messages.DELETE_RECORDS, delete_records.handle),
        Handler(messages.INIT_PRODUCER_ID, init_producer_id.handle),
        Handler(messages.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle),
        Handler(messages.DESCRIBE_CONFIGS, describe_configs.handle),
        Handler(messages.ALTER_CONFIGS, alter_configs.handle),
        Handler(messages.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.handle),
        Handler(messages.DESCRIBE_LOG_DIRS, describe_log_dirs.handle),
        Handler(messages.CREATE_PARTITIONS, create_partitions.handle),
        Handler(messages.ELECT_LEADERS, elect_leaders.handle),
        Handler(messages.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
        Handler(messages.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments.handle),
        Handler(messages.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.handle),
        Handler(messages.DESCRIBE_QUORUM, describe_quorum.handle),
        Handler(messages.UPDATE_FEATURES, update_features.handle),
        Handler(messages.DESCRIBE_CLUSTER, describe_cluster.handle),
        Handler(messages.DESCRIBE_PRODUCERS, describe_producers.handle),
        Handler(messages.LIST_CONFIG_RESOURCES, list_config_resources.handle),
        Handler(messages.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle),
        Handler(messages.UNREGISTER_BROKER, unregister_broker.handle),
    )
}
