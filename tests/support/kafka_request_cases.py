"""Kafka's administrative requests as JSON: for each API a request that succeeds, its rights, and a request that fails.

`{name}` is the name of a topic, a group, or a transactional id.
"""

import asyncio
from typing import Any, NamedTuple

from kwire.access.acl import Operation, ResourceType
from tests.support.http import Http

Op = Operation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
Rights = tuple[tuple[Operation, ResourceType], ...]

# What exists before the request.
NOTHING, PARTITIONED, EMPTY_GROUP, TRANSACTIONAL_ID = "", "topic", "empty group", "transactional id"
REFUSED = "_AUTHORIZATION_FAILED"


class KafkaCase(NamedTuple):
    """A request, and the rights that it needs. `refusal` is in the answer to a client without one of them.

    `accepted` is the error of the answer to a client with all rights, if there is one.
    """

    api: str
    body: dict[str, Any]
    rights: Rights = ()
    setup: str = NOTHING
    accepted: str = ""
    version: int | None = None
    refusal: str = REFUSED
    # The answer shows the resource only to clients with the right.
    is_list: bool = False

    @property
    def route(self) -> str:
        return f"/kafka/{self.api}"

    @property
    def path(self) -> str:
        return self.route if self.version is None else f"{self.route}?version={self.version}"


def new_producer(transactional_id: str) -> dict[str, Any]:
    """Return the body of the request that creates a transactional id."""
    return {"transactional_id": transactional_id, "transaction_timeout_ms": 1000}


async def load_transactions(http: Http, **headers: str) -> None:
    """Create the topic of transactional ids, whose shards are loaded then."""
    await http.post("/kafka/FindCoordinator", {"coordinator_keys": ["any"], "key_type": 1}, **headers)
    await create_transactional_id(http, "any", **headers)


async def create_transactional_id(http: Http, name: str, **headers: str) -> None:
    """Create a transactional id, when its coordinator is ready."""
    async with asyncio.timeout(15):
        while (await http.post("/kafka/InitProducerId", new_producer(name), **headers)).json["error_code"]:
            await asyncio.sleep(0.01)


DESCRIBE_CLUSTER: Rights = ((Op.DESCRIBE, CLUSTER),)
ALTER_CLUSTER: Rights = ((Op.ALTER, CLUSTER),)
DESCRIBE_TOPIC: Rights = ((Op.DESCRIBE, TOPIC),)
NEW_TOPIC = {"name": "{name}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "t",
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
CREDENTIAL = {
    "name": "nobody",
    "mechanism": 1,
    "iterations": 4096,
    "salt": "AAAAAAAAAAAAAAAAAAAAAA==",
    "salted_password": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
}


def _resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def _setting(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, **more}


def _of_topic(**more: Any) -> dict[str, Any]:
    return {"topics": [{"name": "{name}", **more}]}


CASES: tuple[KafkaCase, ...] = (
    # the cluster
    KafkaCase("ApiVersions", {"client_software_name": "test", "client_software_version": "1"}),
    KafkaCase(
        "DescribeCluster",
        {"include_cluster_authorized_operations": True},
        DESCRIBE_CLUSTER,
        refusal='"cluster_authorized_operations":0',
    ),
    KafkaCase(
        "DescribeQuorum",
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        DESCRIBE_CLUSTER,
    ),
    KafkaCase("UpdateFeatures", {"feature_updates": []}, ALTER_CLUSTER),
    KafkaCase("UnregisterBroker", {"broker_id": 1}, ALTER_CLUSTER, accepted="INVALID_REQUEST"),
    KafkaCase("DescribeLogDirs", {"topics": None}, DESCRIBE_CLUSTER),
    KafkaCase(
        "AlterReplicaLogDirs",
        {"dirs": [{"path": "/missing", "topics": [{"name": "{name}", "partitions": [0]}]}]},
        ALTER_CLUSTER,
        PARTITIONED,
        accepted="LOG_DIR_NOT_FOUND",
    ),
    # topics
    KafkaCase("Metadata", {"topics": [{"name": "{name}"}]}, DESCRIBE_TOPIC, PARTITIONED),
    KafkaCase("Metadata", {"topics": None}, DESCRIBE_TOPIC, PARTITIONED, is_list=True),
    KafkaCase("Metadata", {"topics": [{"name": "{name}"}]}, ((Op.DESCRIBE, TOPIC), (Op.CREATE, TOPIC))),
    KafkaCase("DescribeTopicPartitions", _of_topic(), DESCRIBE_TOPIC, PARTITIONED),
    KafkaCase("CreateTopics", {"topics": [NEW_TOPIC]}, ((Op.CREATE, TOPIC), (Op.DESCRIBE_CONFIGS, TOPIC))),
    KafkaCase("DeleteTopics", {**_of_topic(), "timeout_ms": 1000}, ((Op.DELETE, TOPIC),), PARTITIONED),
    KafkaCase(
        "CreatePartitions",
        {**_of_topic(count=2, assignments=None), "timeout_ms": 1000, "validate_only": False},
        ((Op.ALTER, TOPIC),),
        PARTITIONED,
    ),
    KafkaCase(
        "DeleteRecords",
        {**_of_topic(partitions=[{"partition_index": 0, "offset": -1}]), "timeout_ms": 1000},
        ((Op.DELETE, TOPIC),),
        PARTITIONED,
    ),
    KafkaCase(
        "ListOffsets",
        {**_of_topic(partitions=[{"partition_index": 0, "timestamp": -1}]), "replica_id": -1},
        DESCRIBE_TOPIC,
        PARTITIONED,
    ),
    KafkaCase(
        "OffsetForLeaderEpoch",
        {"topics": [{"topic": "{name}", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        DESCRIBE_TOPIC,
        PARTITIONED,
    ),
    KafkaCase(
        "ElectLeaders",
        {"topic_partitions": [{"topic": "{name}", "partitions": [0]}]},
        ALTER_CLUSTER,
        PARTITIONED,
        accepted="ELECTION_NOT_NEEDED",
    ),
    KafkaCase(
        "AlterPartitionReassignments",
        _of_topic(partitions=[{"partition_index": 0, "replicas": [1]}]),
        ALTER_CLUSTER,
        PARTITIONED,
    ),
    KafkaCase("ListPartitionReassignments", {"topics": None}, DESCRIBE_CLUSTER),
    # settings
    KafkaCase("ListConfigResources", {"resource_types": []}, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    KafkaCase(
        "DescribeConfigs",
        {"resources": [_resource(2, "{name}", configuration_keys=None)]},
        ((Op.DESCRIBE_CONFIGS, TOPIC),),
        PARTITIONED,
    ),
    KafkaCase(
        "DescribeConfigs",
        {"resources": [_resource(4, "1", configuration_keys=["log.retention.ms"])]},
        ((Op.DESCRIBE_CONFIGS, CLUSTER),),
    ),
    KafkaCase(
        "IncrementalAlterConfigs",
        {
            "resources": [_resource(2, "{name}", configs=[_setting("retention.ms", "1000", config_operation=0)])],
            "validate_only": False,
        },
        ((Op.ALTER_CONFIGS, TOPIC),),
        PARTITIONED,
    ),
    KafkaCase(
        "AlterConfigs",
        {"resources": [_resource(2, "{name}", configs=[_setting("retention.ms", "1000")])], "validate_only": False},
        ((Op.ALTER_CONFIGS, TOPIC),),
        PARTITIONED,
    ),
    # groups
    KafkaCase("ListGroups", {}, ((Op.DESCRIBE, GROUP),), EMPTY_GROUP, is_list=True),
    KafkaCase("DescribeGroups", {"groups": ["{name}"]}, ((Op.DESCRIBE, GROUP),), accepted="GROUP_ID_NOT_FOUND"),
    KafkaCase(
        "ConsumerGroupDescribe",
        {"group_ids": ["{name}"], "include_authorized_operations": False},
        ((Op.DESCRIBE, GROUP),),
        EMPTY_GROUP,
    ),
    KafkaCase("FindCoordinator", {"coordinator_keys": ["{name}"]}, ((Op.DESCRIBE, GROUP),)),
    KafkaCase(
        "OffsetFetch",
        {"groups": [{"group_id": "{name}", "topics": [{"name": "{name}", "partition_indexes": [0]}]}]},
        ((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
        PARTITIONED,
        version=9,
    ),
    KafkaCase(
        "OffsetCommit",
        {
            **_of_topic(partitions=[{"partition_index": 0, "committed_offset": 0, "committed_metadata": None}]),
            "group_id": "{name}",
            "member_id": "",
        },
        ((Op.READ, GROUP), (Op.READ, TOPIC)),
        PARTITIONED,
        version=9,
    ),
    KafkaCase(
        "OffsetDelete",
        {**_of_topic(partitions=[{"partition_index": 0}]), "group_id": "{name}"},
        ((Op.DELETE, GROUP), (Op.READ, TOPIC)),
        EMPTY_GROUP,
    ),
    KafkaCase(
        "LeaveGroup",
        {"group_id": "{name}", "members": [{"member_id": "nobody"}]},
        ((Op.READ, GROUP),),
        accepted="UNKNOWN_MEMBER_ID",
    ),
    KafkaCase("DeleteGroups", {"groups_names": ["{name}"]}, ((Op.DELETE, GROUP),), EMPTY_GROUP),
    # transactions
    KafkaCase(
        "ListTransactions",
        {"state_filters": [], "producer_id_filters": []},
        ((Op.DESCRIBE, TRANSACTION),),
        TRANSACTIONAL_ID,
        is_list=True,
    ),
    KafkaCase(
        "DescribeTransactions",
        {"transactional_ids": ["{name}"]},
        ((Op.DESCRIBE, TRANSACTION),),
        TRANSACTIONAL_ID,
    ),
    KafkaCase("DescribeProducers", _of_topic(partition_indexes=[0]), ((Op.READ, TOPIC),), PARTITIONED),
    KafkaCase(
        "WriteTxnMarkers",
        {
            "markers": [
                {
                    **_of_topic(partition_indexes=[0]),
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                }
            ]
        },
        ALTER_CLUSTER,
        PARTITIONED,
    ),
    KafkaCase(
        "InitProducerId",
        {"transactional_id": "{name}", "transaction_timeout_ms": 1000},
        ((Op.WRITE, TRANSACTION),),
    ),
    # access
    KafkaCase("DescribeAcls", ACL_FILTER, DESCRIBE_CLUSTER),
    KafkaCase("CreateAcls", {"creations": [ACL]}, ALTER_CLUSTER),
    KafkaCase("DeleteAcls", {"filters": [ACL_FILTER]}, ALTER_CLUSTER),
    KafkaCase("DescribeUserScramCredentials", {"users": None}, DESCRIBE_CLUSTER),
    KafkaCase("AlterUserScramCredentials", {"deletions": [], "upsertions": [CREDENTIAL]}, ALTER_CLUSTER),
    KafkaCase("DescribeClientQuotas", {"components": [], "strict": False}, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    KafkaCase("AlterClientQuotas", {"entries": [QUOTA], "validate_only": True}, ((Op.ALTER_CONFIGS, CLUSTER),)),
)

# For each API whose request above succeeds, a request of the newest version that fails, with the name of its error.
_PARTITION = {"partition_index": 9}
_NO_TOPIC_ID = "BwcHBwcHBwcHBwcHBwcHBw"
FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "ApiVersions": ({}, "INVALID_REQUEST"),
    "DescribeCluster": (
        {"include_cluster_authorized_operations": False, "endpoint_type": 9},
        "UNSUPPORTED_ENDPOINT_TYPE",
    ),
    "DescribeQuorum": (
        {"topics": [{"topic_name": "{name}", "partitions": [{"partition_index": 0}]}]},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "UpdateFeatures": (
        {"feature_updates": [{"feature": "no.such.feature", "max_version_level": 1}]},
        "INVALID_UPDATE_VERSION",
    ),
    "Metadata": ({"topics": [{"name": "{name}"}], "allow_auto_topic_creation": False}, "UNKNOWN_TOPIC_OR_PARTITION"),
    "DescribeTopicPartitions": (_of_topic(), "UNKNOWN_TOPIC_OR_PARTITION"),
    "CreateTopics": ({"topics": [{**NEW_TOPIC, "num_partitions": 0}]}, "INVALID_PARTITIONS"),
    "DeleteTopics": ({**_of_topic(), "timeout_ms": 1000}, "UNKNOWN_TOPIC_OR_PARTITION"),
    "CreatePartitions": (
        {**_of_topic(count=2, assignments=None), "timeout_ms": 1000, "validate_only": False},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "DeleteRecords": (
        {**_of_topic(partitions=[{"partition_index": 9, "offset": -1}]), "timeout_ms": 1000},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "ListOffsets": (
        {**_of_topic(partitions=[{"partition_index": 9, "timestamp": -1}]), "replica_id": -1},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "OffsetForLeaderEpoch": (
        {"topics": [{"topic": "{name}", "partitions": [{"partition": 9, "leader_epoch": 0}]}]},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "AlterPartitionReassignments": (
        _of_topic(partitions=[{"partition_index": 9, "replicas": [1]}]),
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "ListConfigResources": ({"resource_types": [99]}, "UNSUPPORTED_VERSION"),
    "DescribeConfigs": (
        {"resources": [_resource(2, "{name}", configuration_keys=None)]},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "IncrementalAlterConfigs": (
        {
            "resources": [_resource(2, "{name}", configs=[_setting("retention.ms", "7d", config_operation=0)])],
            "validate_only": False,
        },
        "INVALID_CONFIG",
    ),
    "AlterConfigs": (
        {"resources": [_resource(99, "{name}", configs=[])], "validate_only": False},
        "INVALID_REQUEST",
    ),
    "ConsumerGroupDescribe": (
        {"group_ids": ["{name}"], "include_authorized_operations": False},
        "GROUP_ID_NOT_FOUND",
    ),
    "FindCoordinator": ({"coordinator_keys": ["{name}"], "key_type": 9}, "INVALID_REQUEST"),
    "OffsetFetch": (
        {"groups": [{"group_id": "{name}", "topics": [{"topic_id": _NO_TOPIC_ID, "partition_indexes": [0]}]}]},
        "UNKNOWN_TOPIC_ID",
    ),
    "OffsetCommit": (
        {
            "topics": [
                {
                    "topic_id": _NO_TOPIC_ID,
                    "partitions": [{**_PARTITION, "committed_offset": 0, "committed_metadata": None}],
                }
            ],
            "group_id": "{name}",
            "member_id": "",
        },
        "UNKNOWN_TOPIC_ID",
    ),
    "OffsetDelete": (
        {**_of_topic(partitions=[_PARTITION]), "group_id": "{name}"},
        "GROUP_ID_NOT_FOUND",
    ),
    "DeleteGroups": ({"groups_names": ["{name}"]}, "GROUP_ID_NOT_FOUND"),
    "DescribeTransactions": ({"transactional_ids": ["{name}"]}, "TRANSACTIONAL_ID_NOT_FOUND"),
    "DescribeProducers": (_of_topic(partition_indexes=[9]), "UNKNOWN_TOPIC_OR_PARTITION"),
    "WriteTxnMarkers": (
        {
            "markers": [
                {
                    **_of_topic(partition_indexes=[9]),
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                }
            ]
        },
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "InitProducerId": ({"transactional_id": "", "transaction_timeout_ms": 1000}, "INVALID_REQUEST"),
    "CreateAcls": ({"creations": [{**ACL, "operation": 1}]}, "INVALID_REQUEST"),
    "DescribeAcls": ({**ACL_FILTER, "operation": 0}, "INVALID_REQUEST"),
    "DeleteAcls": ({"filters": [{**ACL_FILTER, "operation": 0}]}, "INVALID_REQUEST"),
    "DescribeUserScramCredentials": ({"users": [{"name": "{name}"}]}, "RESOURCE_NOT_FOUND"),
    "AlterUserScramCredentials": (
        {"deletions": [{"name": "{name}", "mechanism": 1}], "upsertions": []},
        "RESOURCE_NOT_FOUND",
    ),
    "DescribeClientQuotas": (
        {"components": [{"entity_type": "colour", "match_type": 0, "match": "red"}], "strict": False},
        "UNSUPPORTED_VERSION",
    ),
    "AlterClientQuotas": (
        {
            "entries": [{**QUOTA, "ops": [{"key": "no_such_quota", "value": 1.0, "remove": False}]}],
            "validate_only": True,
        },
        "INVALID_REQUEST",
    ),
}
# These requests have no error that a client with all rights can get: they list what there is.
NEVER_FAILING = {"DescribeLogDirs", "ListPartitionReassignments", "ListGroups", "ListTransactions"}
