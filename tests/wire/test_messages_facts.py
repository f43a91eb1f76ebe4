"""What is declared equals what Apache Kafka 4.4 serves."""

import pytest

from kwire.wire.apis import APIS
from kwire.wire.schema import LAST_VERSION, Versions, message_of

# Every API of the broker listener: key, name, versions, first flexible version. Two rows differ from Kafka's schemas on
# purpose: Produce is declared from 0 (Kafka's broker advertises 0 too, KAFKA-18659), and InitProducerId ends at 5 (6 is
# unstable and not advertised).
KAFKA_4_4: list[tuple[int, str, str, int | None]] = [
    (0, "Produce", "0-13", 9),
    (1, "Fetch", "4-18", 12),
    (2, "ListOffsets", "1-11", 6),
    (3, "Metadata", "0-13", 9),
    (8, "OffsetCommit", "2-10", 8),
    (9, "OffsetFetch", "1-10", 6),
    (10, "FindCoordinator", "0-6", 3),
    (11, "JoinGroup", "0-9", 6),
    (12, "Heartbeat", "0-4", 4),
    (13, "LeaveGroup", "0-5", 4),
    (14, "SyncGroup", "0-5", 4),
    (15, "DescribeGroups", "0-6", 5),
    (16, "ListGroups", "0-5", 3),
    (17, "SaslHandshake", "0-1", None),
    (18, "ApiVersions", "0-5", 3),
    (19, "CreateTopics", "2-7", 5),
    (20, "DeleteTopics", "1-6", 4),
    (21, "DeleteRecords", "0-2", 2),
    (22, "InitProducerId", "0-5", 2),
    (23, "OffsetForLeaderEpoch", "2-4", 4),
    (24, "AddPartitionsToTxn", "0-5", 3),
    (25, "AddOffsetsToTxn", "0-4", 3),
    (26, "EndTxn", "0-5", 3),
    (27, "WriteTxnMarkers", "1-2", 1),
    (28, "TxnOffsetCommit", "0-6", 3),
    (29, "DescribeAcls", "1-3", 2),
    (30, "CreateAcls", "1-3", 2),
    (31, "DeleteAcls", "1-3", 2),
    (32, "DescribeConfigs", "1-4", 4),
    (33, "AlterConfigs", "0-2", 2),
    (34, "AlterReplicaLogDirs", "1-2", 2),
    (35, "DescribeLogDirs", "1-5", 2),
    (36, "SaslAuthenticate", "0-2", 2),
    (37, "CreatePartitions", "0-3", 2),
    (38, "CreateDelegationToken", "1-3", 2),
    (39, "RenewDelegationToken", "1-2", 2),
    (40, "ExpireDelegationToken", "1-2", 2),
    (41, "DescribeDelegationToken", "1-3", 2),
    (42, "DeleteGroups", "0-3", 2),
    (43, "ElectLeaders", "0-2", 2),
    (44, "IncrementalAlterConfigs", "0-1", 1),
    (45, "AlterPartitionReassignments", "0-1", 0),
    (46, "ListPartitionReassignments", "0", 0),
    (47, "OffsetDelete", "0", None),
    (48, "DescribeClientQuotas", "0-1", 1),
    (49, "AlterClientQuotas", "0-1", 1),
    (50, "DescribeUserScramCredentials", "0", 0),
    (51, "AlterUserScramCredentials", "0", 0),
    (55, "DescribeQuorum", "0-2", 0),
    (57, "UpdateFeatures", "0-2", 0),
    (60, "DescribeCluster", "0-2", 0),
    (61, "DescribeProducers", "0", 0),
    (64, "UnregisterBroker", "0", 0),
    (65, "DescribeTransactions", "0", 0),
    (66, "ListTransactions", "0-2", 0),
    (68, "ConsumerGroupHeartbeat", "0-1", 0),
    (69, "ConsumerGroupDescribe", "0-1", 0),
    (71, "GetTelemetrySubscriptions", "0", 0),
    (72, "PushTelemetry", "0", 0),
    (74, "ListConfigResources", "0-1", 0),
    (75, "DescribeTopicPartitions", "0", 0),
    (76, "ShareGroupHeartbeat", "1", 0),
    (77, "ShareGroupDescribe", "1", 0),
    (78, "ShareFetch", "1-2", 0),
    (79, "ShareAcknowledge", "1-2", 0),
    (80, "AddRaftVoter", "0-1", 0),
    (81, "RemoveRaftVoter", "0", 0),
    (83, "InitializeShareGroupState", "0", 0),
    (84, "ReadShareGroupState", "0", 0),
    (85, "WriteShareGroupState", "0-1", 0),
    (86, "DeleteShareGroupState", "0", 0),
    (87, "ReadShareGroupStateSummary", "0-1", 0),
    (88, "StreamsGroupHeartbeat", "0-1", 0),
    (89, "StreamsGroupDescribe", "0-1", 0),
    (90, "DescribeShareGroupOffsets", "0-1", 0),
    (91, "AlterShareGroupOffsets", "0", 0),
    (92, "DeleteShareGroupOffsets", "0", 0),
    (93, "StreamsGroupTopologyDescriptionUpdate", "0", 0),
    (94, "UnregisterController", "0", 0),
]


def test_every_row_is_declared_and_nothing_else() -> None:
    assert len(KAFKA_4_4) == 79
    assert sorted(APIS) == [key for key, _, _, _ in KAFKA_4_4]


@pytest.mark.parametrize(("key", "name", "versions", "flexible"), KAFKA_4_4, ids=[row[1] for row in KAFKA_4_4])
def test_name_versions_and_flexibility_are_kafkas(key: int, name: str, versions: str, flexible: int | None) -> None:
    api = APIS[key]
    assert (api.key, api.name, str(api.versions)) == (key, name, versions)
    for cls in (api.request, api.response):
        message = message_of(cls)
        assert message.key == key
        expected = Versions.parse("none") if flexible is None else Versions(flexible, LAST_VERSION)
        assert message.flexible == expected
    assert (message_of(api.request).name, message_of(api.response).name) == (f"{name}Request", f"{name}Response")
