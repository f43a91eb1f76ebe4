"""The requests that POST /kafka/{ApiName} accepts: those that administrators use to change and to inspect.

Every API of the Kafka port is in one of the two tables: in REQUESTS, or in EXCLUDED with the reason.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.access.quotas.kinds import QuotaKind
from kwire.handlers import HANDLERS
from kwire.web.needs import Need
from kwire.wire.schema import Api


class ListedRequest(NamedTuple):
    """A request, its documentation, and the quota that it is charged to besides that of its time."""

    name: str
    summary: str
    description: str = ""
    charges: QuotaKind | None = None

    @property
    def api(self) -> Api:
        return _APIS[self.name]

    @property
    def needs(self) -> tuple[Need, ...]:
        """The needs of the API's handler. The handler checks them itself."""
        return tuple(
            Need(need.operation, need.resource_type, is_in_handler=True) for need in HANDLERS[self.api.key].needs
        )


_APIS = {handler.api.name: handler.api for handler in HANDLERS.values()}

_BY_ID = "From version {} on topics have ids instead of names: `?version={}` takes names."

REQUESTS: tuple[ListedRequest, ...] = (
    # --- the cluster
    ListedRequest("ApiVersions", "List the APIs that the server supports, with their versions"),
    ListedRequest("DescribeCluster", "Describe the cluster and its nodes"),
    ListedRequest("DescribeQuorum", "Describe the quorum of the metadata log"),
    ListedRequest("UpdateFeatures", "Change the levels of features"),
    ListedRequest("UnregisterBroker", "Remove a broker from the cluster"),
    ListedRequest("DescribeLogDirs", "Describe the data directories and the sizes of the partitions in them"),
    ListedRequest("AlterReplicaLogDirs", "Move partitions to another data directory"),
    # --- topics
    ListedRequest(
        "Metadata",
        "Describe topics and their partitions",
        "`topics: null` requests all topics. A topic that does not exist is created, unless "
        "`allow_auto_topic_creation` is false or `auto.create.topics.enable` is off.",
    ),
    ListedRequest("DescribeTopicPartitions", "Describe the partitions of topics, page by page"),
    ListedRequest("CreateTopics", "Create topics", charges=QuotaKind.MUTATION),
    ListedRequest("DeleteTopics", "Delete topics by name or by id", charges=QuotaKind.MUTATION),
    ListedRequest("CreatePartitions", "Add partitions to topics", charges=QuotaKind.MUTATION),
    ListedRequest("DeleteRecords", "Delete the records of partitions before an offset"),
    ListedRequest(
        "ListOffsets",
        "Find the offsets of partitions for a time",
        "The `timestamp` -1 requests the end of the partition, -2 its beginning, -3 the record with the largest "
        "timestamp. `replica_id` is -1 for clients.",
    ),
    ListedRequest("OffsetForLeaderEpoch", "Find the end offsets of leader epochs"),
    ListedRequest("ElectLeaders", "Elect leaders of partitions"),
    ListedRequest("AlterPartitionReassignments", "Move partitions to other brokers"),
    ListedRequest("ListPartitionReassignments", "List the partitions that are being moved to other brokers"),
    # --- settings
    ListedRequest("ListConfigResources", "List the resources that have settings"),
    ListedRequest("DescribeConfigs", "Describe the settings of topics, groups and the node"),
    ListedRequest("IncrementalAlterConfigs", "Change single settings of topics, groups and the node"),
    ListedRequest("AlterConfigs", "Replace all settings of topics, groups and the node"),
    # --- groups
    ListedRequest("ListGroups", "List the groups, with their states and types"),
    ListedRequest("DescribeGroups", "Describe classic groups and their members"),
    ListedRequest("ConsumerGroupDescribe", "Describe consumer groups and their members"),
    ListedRequest("FindCoordinator", "Find the coordinators of groups or transactional ids"),
    ListedRequest("OffsetFetch", "Read the committed offsets of groups", _BY_ID.format(10, 9)),
    ListedRequest(
        "OffsetCommit",
        "Set the committed offsets of a group without members",
        f"`member_id` is empty for a client that is not a member of the group. {_BY_ID.format(10, 9)}",
    ),
    ListedRequest("OffsetDelete", "Delete committed offsets of a group"),
    ListedRequest("LeaveGroup", "Remove members from a classic group"),
    ListedRequest("DeleteGroups", "Delete groups without members"),
    # --- transactions
    ListedRequest("ListTransactions", "List the transactional ids and the states of their transactions"),
    ListedRequest("DescribeTransactions", "Describe the transactions of transactional ids"),
    ListedRequest("DescribeProducers", "Describe the producers of partitions, and their open transactions"),
    ListedRequest("WriteTxnMarkers", "End a hanging transaction in partitions"),
    ListedRequest(
        "InitProducerId",
        "Abort the open transaction of a transactional id",
        "The producer of the transactional id is fenced: it gets an error with its next request.",
    ),
    # --- access
    ListedRequest("DescribeAcls", "List ACLs that match a filter"),
    ListedRequest("CreateAcls", "Create ACLs"),
    ListedRequest("DeleteAcls", "Delete the ACLs that match filters"),
    ListedRequest("DescribeUserScramCredentials", "List the SCRAM users and their mechanisms"),
    ListedRequest("AlterUserScramCredentials", "Create, change and delete SCRAM users"),
    ListedRequest("DescribeClientQuotas", "List the quotas that match a filter"),
    ListedRequest("AlterClientQuotas", "Set and remove quotas of users, clients and addresses"),
)

_RECORDS = "records are published and read over HTTP as events: /topics/{topic}/publish, /topics/{topic}/records"
_MEMBERS = "a member of a group has a session; over HTTP it is at /consumer-groups/{group}"
_PRODUCERS = "the transaction of a producer, which sends its records over a Kafka connection"
_LOGIN = "the login of a Kafka connection; HTTP has its own authentication"

# The APIs that are not served as JSON, with the reasons.
EXCLUDED: Mapping[str, str] = {
    "Produce": _RECORDS,
    "Fetch": _RECORDS,
    "JoinGroup": _MEMBERS,
    "SyncGroup": _MEMBERS,
    "Heartbeat": _MEMBERS,
    "ConsumerGroupHeartbeat": _MEMBERS,
    "AddPartitionsToTxn": _PRODUCERS,
    "AddOffsetsToTxn": _PRODUCERS,
    "TxnOffsetCommit": _PRODUCERS,
    "EndTxn": _PRODUCERS,
    "SaslHandshake": _LOGIN,
    "SaslAuthenticate": _LOGIN,
}
