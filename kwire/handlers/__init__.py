"""One file per Kafka API: (context, request) -> response, or an awaitable of it. `HANDLERS` is the one list.

What the server advertises, serves and documents is derived from `HANDLERS`. A handler's synchronous part runs before
the next request of the same connection is looked at; record views in the request are only valid during it.
"""

from kwire.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
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
        Handler(messages.INIT_PRODUCER_ID, init_producer_id.handle),
        Handler(messages.DESCRIBE_CONFIGS, describe_configs.handle),
        Handler(messages.CREATE_PARTITIONS, create_partitions.handle),
        Handler(messages.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
        Handler(messages.DESCRIBE_CLUSTER, describe_cluster.handle),
    )
}
