"""One file per API: its request and its response, and in `APIS` the list of all of them, by key."""

from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.delete_topics import DELETE_TOPICS
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR
from kwire.wire.messages.heartbeat import HEARTBEAT
from kwire.wire.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID
from kwire.wire.messages.join_group import JOIN_GROUP
from kwire.wire.messages.leave_group import LEAVE_GROUP
from kwire.wire.messages.list_offsets import LIST_OFFSETS
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.offset_commit import OFFSET_COMMIT
from kwire.wire.messages.offset_fetch import OFFSET_FETCH
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.messages.sync_group import SYNC_GROUP
from kwire.wire.schema import Api

__all__ = [
    "APIS",
    "API_VERSIONS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "SYNC_GROUP",
]

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        INIT_PRODUCER_ID,
        DESCRIBE_CONFIGS,
        CREATE_PARTITIONS,
        INCREMENTAL_ALTER_CONFIGS,
        DESCRIBE_CLUSTER,
    )
}
