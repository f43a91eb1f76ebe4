"""The handlers, one module or package per Kafka API. `HANDLERS` lists the APIs that are served and documented,
with the operations for which each handler checks the client's rights.

In the docstrings of the handlers, "X is ERROR_CODE" means that the response reports this error for X.

The synchronous part of a handler runs before the next request of the connection is handled. The views of records in a
request are valid only during this part.
"""

from kwire.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from kwire.handlers.shared import needs
from kwire.handlers.shared.context import Handler
from kwire.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from kwire.wire.messages.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from kwire.wire.messages.alter_client_quotas import ALTER_CLIENT_QUOTAS
from kwire.wire.messages.alter_configs import ALTER_CONFIGS
from kwire.wire.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from kwire.wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from kwire.wire.messages.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from kwire.wire.messages.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from kwire.wire.messages.create_acls import CREATE_ACLS
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.delete_acls import DELETE_ACLS
from kwire.wire.messages.delete_groups import DELETE_GROUPS
from kwire.wire.messages.delete_records import DELETE_RECORDS
from kwire.wire.messages.delete_topics import DELETE_TOPICS
from kwire.wire.messages.describe_acls import DESCRIBE_ACLS
from kwire.wire.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS
from kwire.wire.messages.describe_groups import DESCRIBE_GROUPS
from kwire.wire.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from kwire.wire.messages.describe_producers import DESCRIBE_PRODUCERS
from kwire.wire.messages.describe_quorum import DESCRIBE_QUORUM
from kwire.wire.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from kwire.wire.messages.describe_transactions import DESCRIBE_TRANSACTIONS
from kwire.wire.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from kwire.wire.messages.elect_leaders import ELECT_LEADERS
from kwire.wire.messages.end_txn import END_TXN
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR
from kwire.wire.messages.heartbeat import HEARTBEAT
from kwire.wire.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID
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
from kwire.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE
from kwire.wire.messages.sync_group import SYNC_GROUP
from kwire.wire.messages.txn_offset_commit import TXN_OFFSET_COMMIT
from kwire.wire.messages.unregister_broker import UNREGISTER_BROKER
from kwire.wire.messages.update_features import UPDATE_FEATURES
from kwire.wire.messages.write_txn_markers import WRITE_TXN_MARKERS

HANDLERS: dict[int, Handler] = {
    handler.api.key: handler
    for handler in (
        Handler(
            PRODUCE,
            produce.handle,
            (needs.WRITE_TOPIC, needs.WRITE_TRANSACTIONAL_ID),
            produce.ProduceTemplateCache,
            has_records=True,
        ),
        Handler(FETCH, fetch.handle, (needs.READ_TOPIC, needs.CLUSTER_ACTION)),
        Handler(LIST_OFFSETS, list_offsets.handle, (needs.DESCRIBE_TOPIC,)),
        Handler(
            METADATA,
            metadata.handle,
            (needs.DESCRIBE_TOPIC, needs.CREATE_TOPIC, needs.CREATE_CLUSTER, needs.DESCRIBE_CLUSTER),
        ),
        Handler(
            OFFSET_COMMIT,
            offset_commit.handle,
            (needs.READ_GROUP, needs.READ_TOPIC),
            offset_commit.OffsetCommitTemplateCache,
        ),
        Handler(OFFSET_FETCH, offset_fetch.handle, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC)),
        Handler(FIND_COORDINATOR, find_coordinator.handle, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TRANSACTIONAL_ID)),
        Handler(JOIN_GROUP, join_group.handle, (needs.READ_GROUP,)),
        Handler(HEARTBEAT, heartbeat.handle, (needs.READ_GROUP,)),
        Handler(LEAVE_GROUP, leave_group.handle, (needs.READ_GROUP,)),
        Handler(SYNC_GROUP, sync_group.handle, (needs.READ_GROUP,)),
        Handler(DESCRIBE_GROUPS, describe_groups.handle, (needs.DESCRIBE_GROUP,)),
        Handler(LIST_GROUPS, list_groups.handle, (needs.DESCRIBE_CLUSTER, needs.DESCRIBE_GROUP)),
        Handler(SASL_HANDSHAKE, sasl_handshake.handle, ()),
        Handler(API_VERSIONS, api_versions.handle, ()),
        Handler(
            CREATE_TOPICS,
            create_topics.handle,
            (needs.CREATE_TOPIC, needs.CREATE_CLUSTER, needs.DESCRIBE_TOPIC_CONFIGS),
        ),
        Handler(DELETE_TOPICS, delete_topics.handle, (needs.DELETE_TOPIC, needs.DESCRIBE_TOPIC, needs.DELETE_CLUSTER)),
        Handler(DELETE_RECORDS, delete_records.handle, (needs.DELETE_TOPIC,)),
        Handler(
            INIT_PRODUCER_ID,
            init_producer_id.handle,
            (needs.WRITE_TRANSACTIONAL_ID, needs.IDEMPOTENT_WRITE, needs.WRITE_TOPIC),
        ),
        Handler(OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle, (needs.CLUSTER_ACTION, needs.DESCRIBE_TOPIC)),
        Handler(
            ADD_PARTITIONS_TO_TXN,
            add_partitions_to_txn.handle,
            (needs.WRITE_TRANSACTIONAL_ID, needs.WRITE_TOPIC, needs.CLUSTER_ACTION),
        ),
        Handler(ADD_OFFSETS_TO_TXN, add_offsets_to_txn.handle, (needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP)),
        Handler(END_TXN, end_txn.handle, (needs.WRITE_TRANSACTIONAL_ID,)),
        Handler(WRITE_TXN_MARKERS, write_txn_markers.handle, (needs.ALTER_CLUSTER, needs.CLUSTER_ACTION)),
        Handler(
            TXN_OFFSET_COMMIT,
            txn_offset_commit.handle,
            (needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP, needs.READ_TOPIC),
        ),
        Handler(DESCRIBE_ACLS, describe_acls.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(CREATE_ACLS, create_acls.handle, (needs.ALTER_CLUSTER,)),
        Handler(DELETE_ACLS, delete_acls.handle, (needs.ALTER_CLUSTER,)),
        Handler(
            DESCRIBE_CONFIGS,
            describe_configs.handle,
            (needs.DESCRIBE_TOPIC_CONFIGS, needs.DESCRIBE_GROUP_CONFIGS, needs.DESCRIBE_CLUSTER_CONFIGS),
        ),
        Handler(
            ALTER_CONFIGS,
            alter_configs.handle,
            (needs.ALTER_TOPIC_CONFIGS, needs.ALTER_GROUP_CONFIGS, needs.ALTER_CLUSTER_CONFIGS),
        ),
        Handler(ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.handle, (needs.ALTER_CLUSTER,)),
        Handler(DESCRIBE_LOG_DIRS, describe_log_dirs.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(SASL_AUTHENTICATE, sasl_authenticate.handle, ()),
        Handler(CREATE_PARTITIONS, create_partitions.handle, (needs.ALTER_TOPIC,)),
        Handler(ELECT_LEADERS, elect_leaders.handle, (needs.ALTER_CLUSTER,)),
        Handler(
            INCREMENTAL_ALTER_CONFIGS,
            incremental_alter_configs.handle,
            (needs.ALTER_TOPIC_CONFIGS, needs.ALTER_GROUP_CONFIGS, needs.ALTER_CLUSTER_CONFIGS),
        ),
        Handler(DELETE_GROUPS, delete_groups.handle, (needs.DELETE_GROUP,)),
        Handler(OFFSET_DELETE, offset_delete.handle, (needs.DELETE_GROUP, needs.READ_TOPIC)),
        Handler(ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments.handle, (needs.ALTER_CLUSTER,)),
        Handler(LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(DESCRIBE_CLIENT_QUOTAS, describe_client_quotas.handle, (needs.DESCRIBE_CLUSTER_CONFIGS,)),
        Handler(ALTER_CLIENT_QUOTAS, alter_client_quotas.handle, (needs.ALTER_CLUSTER_CONFIGS,)),
        Handler(DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(ALTER_USER_SCRAM_CREDENTIALS, alter_user_scram_credentials.handle, (needs.ALTER_CLUSTER,)),
        Handler(DESCRIBE_QUORUM, describe_quorum.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(UPDATE_FEATURES, update_features.handle, (needs.ALTER_CLUSTER,)),
        Handler(DESCRIBE_CLUSTER, describe_cluster.handle, (needs.DESCRIBE_CLUSTER,)),
        Handler(DESCRIBE_PRODUCERS, describe_producers.handle, (needs.READ_TOPIC,)),
        Handler(
            DESCRIBE_TRANSACTIONS, describe_transactions.handle, (needs.DESCRIBE_TRANSACTIONAL_ID, needs.DESCRIBE_TOPIC)
        ),
        Handler(LIST_TRANSACTIONS, list_transactions.handle, (needs.DESCRIBE_TRANSACTIONAL_ID,)),
        Handler(CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.handle, (needs.READ_GROUP, needs.DESCRIBE_TOPIC)),
        Handler(CONSUMER_GROUP_DESCRIBE, consumer_group_describe.handle, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC)),
        Handler(LIST_CONFIG_RESOURCES, list_config_resources.handle, (needs.DESCRIBE_CLUSTER_CONFIGS,)),
        Handler(DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle, (needs.DESCRIBE_TOPIC,)),
        Handler(UNREGISTER_BROKER, unregister_broker.handle, (needs.ALTER_CLUSTER,)),
    )
}
