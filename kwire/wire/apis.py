"""All declared APIs of Kafka 4.4's broker listener, by key.

Not every declared API is served. The server advertises the APIs that have a handler (`kwire.handlers.HANDLERS`). It
imports only the declarations of these APIs, because the import of one declaration takes most of a millisecond.
"""

from kwire.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from kwire.wire.messages.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from kwire.wire.messages.add_raft_voter import ADD_RAFT_VOTER
from kwire.wire.messages.alter_client_quotas import ALTER_CLIENT_QUOTAS
from kwire.wire.messages.alter_configs import ALTER_CONFIGS
from kwire.wire.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from kwire.wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from kwire.wire.messages.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from kwire.wire.messages.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from kwire.wire.messages.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from kwire.wire.messages.create_acls import CREATE_ACLS
from kwire.wire.messages.create_delegation_token import CREATE_DELEGATION_TOKEN
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.delete_acls import DELETE_ACLS
from kwire.wire.messages.delete_groups import DELETE_GROUPS
from kwire.wire.messages.delete_records import DELETE_RECORDS
from kwire.wire.messages.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from kwire.wire.messages.delete_share_group_state import DELETE_SHARE_GROUP_STATE
from kwire.wire.messages.delete_topics import DELETE_TOPICS
from kwire.wire.messages.describe_acls import DESCRIBE_ACLS
from kwire.wire.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS
from kwire.wire.messages.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from kwire.wire.messages.describe_groups import DESCRIBE_GROUPS
from kwire.wire.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from kwire.wire.messages.describe_producers import DESCRIBE_PRODUCERS
from kwire.wire.messages.describe_quorum import DESCRIBE_QUORUM
from kwire.wire.messages.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from kwire.wire.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from kwire.wire.messages.describe_transactions import DESCRIBE_TRANSACTIONS
from kwire.wire.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from kwire.wire.messages.elect_leaders import ELECT_LEADERS
from kwire.wire.messages.end_txn import END_TXN
from kwire.wire.messages.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR
from kwire.wire.messages.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from kwire.wire.messages.heartbeat import HEARTBEAT
from kwire.wire.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID
from kwire.wire.messages.initialize_share_group_state import INITIALIZE_SHARE_GROUP_STATE
from kwire.wire.messages.join_group import JOIN_GROUP
from kwire.wire.messages.leave_group import LEAVE_GROUP
from kwire.wire.messages.list_config_resources import LIST_CONFIG_RESOURCES
from kwire.wire.messages.list_groups import LIST_GROUPS
from kwire.wire.messages.list_offsets import LIST_OFFSETS
from kwire.wire.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from kwire.wire.messages.list_transactions import LIST_TRANSACTIONS
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.offset_commit import OFFSET_COMMIT
from kwire.wire.messages.offset_delete import OFFSET_DELETE
from kwire.wire.messages.offset_fetch import OFFSET_FETCH
from kwire.wire.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.messages.push_telemetry import PUSH_TELEMETRY
from kwire.wire.messages.read_share_group_state import READ_SHARE_GROUP_STATE
from kwire.wire.messages.read_share_group_state_summary import READ_SHARE_GROUP_STATE_SUMMARY
from kwire.wire.messages.remove_raft_voter import REMOVE_RAFT_VOTER
from kwire.wire.messages.renew_delegation_token import RENEW_DELEGATION_TOKEN
from kwire.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE
from kwire.wire.messages.share_acknowledge import SHARE_ACKNOWLEDGE
from kwire.wire.messages.share_fetch import SHARE_FETCH
from kwire.wire.messages.share_group_describe import SHARE_GROUP_DESCRIBE
from kwire.wire.messages.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from kwire.wire.messages.streams_group_describe import STREAMS_GROUP_DESCRIBE
from kwire.wire.messages.streams_group_heartbeat import STREAMS_GROUP_HEARTBEAT
from kwire.wire.messages.streams_group_topology_description_update import STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
from kwire.wire.messages.sync_group import SYNC_GROUP
from kwire.wire.messages.txn_offset_commit import TXN_OFFSET_COMMIT
from kwire.wire.messages.unregister_broker import UNREGISTER_BROKER
from kwire.wire.messages.unregister_controller import UNREGISTER_CONTROLLER
from kwire.wire.messages.update_features import UPDATE_FEATURES
from kwire.wire.messages.write_share_group_state import WRITE_SHARE_GROUP_STATE
from kwire.wire.messages.write_txn_markers import WRITE_TXN_MARKERS
from kwire.wire.schema import Api

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "ADD_RAFT_VOTER",
    "ALTER_CLIENT_QUOTAS",
    "ALTER_CONFIGS",
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "ALTER_SHARE_GROUP_OFFSETS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "APIS",
    "API_VERSIONS",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "CREATE_ACLS",
    "CREATE_DELEGATION_TOKEN",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_ACLS",
    "DELETE_GROUPS",
    "DELETE_RECORDS",
    "DELETE_SHARE_GROUP_OFFSETS",
    "DELETE_SHARE_GROUP_STATE",
    "DELETE_TOPICS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_GROUPS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "DESCRIBE_TRANSACTIONS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ELECT_LEADERS",
    "END_TXN",
    "EXPIRE_DELEGATION_TOKEN",
    "FETCH",
    "FIND_COORDINATOR",
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INITIALIZE_SHARE_GROUP_STATE",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_CONFIG_RESOURCES",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LIST_PARTITION_REASSIGNMENTS",
    "LIST_TRANSACTIONS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "PUSH_TELEMETRY",
    "READ_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    "REMOVE_RAFT_VOTER",
    "RENEW_DELEGATION_TOKEN",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SHARE_ACKNOWLEDGE",
    "SHARE_FETCH",
    "SHARE_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT",
    "STREAMS_GROUP_DESCRIBE",
    "STREAMS_GROUP_HEARTBEAT",
    "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "UNREGISTER_BROKER",
    "UNREGISTER_CONTROLLER",
    "UPDATE_FEATURES",
    "WRITE_SHARE_GROUP_STATE",
    "WRITE_TXN_MARKERS",
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
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        CREATE_DELEGATION_TOKEN,
        RENEW_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ALTER_USER_SCRAM_CREDENTIALS,
        DESCRIBE_QUORUM,
        UPDATE_FEATURES,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        UNREGISTER_BROKER,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        GET_TELEMETRY_SUBSCRIPTIONS,
        PUSH_TELEMETRY,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
        SHARE_GROUP_HEARTBEAT,
        SHARE_GROUP_DESCRIBE,
        SHARE_FETCH,
        SHARE_ACKNOWLEDGE,
        ADD_RAFT_VOTER,
        REMOVE_RAFT_VOTER,
        INITIALIZE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE,
        WRITE_SHARE_GROUP_STATE,
        DELETE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE_SUMMARY,
        STREAMS_GROUP_HEARTBEAT,
        STREAMS_GROUP_DESCRIBE,
        DESCRIBE_SHARE_GROUP_OFFSETS,
        ALTER_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_OFFSETS,
        STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        UNREGISTER_CONTROLLER,
    )
}
