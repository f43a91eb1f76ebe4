"""What is declared equals what Apache Kafka 4.4 serves."""

import pytest

from kwire.wire.messages import APIS
from kwire.wire.schema import LAST_VERSION, message_of

# Key, name, versions, first flexible version. Two rows differ from Kafka's schemas on purpose: Produce is declared from
# 0 (Kafka's broker advertises 0 too, KAFKA-18659), and InitProducerId ends at 5 (6 is unstable and not advertised).
KAFKA_4_4 = [
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
    (18, "ApiVersions", "0-5", 3),
    (19, "CreateTopics", "2-7", 5),
    (20, "DeleteTopics", "1-6", 4),
    (22, "InitProducerId", "0-5", 2),
    (32, "DescribeConfigs", "1-4", 4),
    (37, "CreatePartitions", "0-3", 2),
    (44, "IncrementalAlterConfigs", "0-1", 1),
    (60, "DescribeCluster", "0-2", 0),
]


def test_every_row_is_declared_and_nothing_else() -> None:
    assert sorted(APIS) == [key for key, _, _, _ in KAFKA_4_4]


@pytest.mark.parametrize(("key", "name", "versions", "flexible"), KAFKA_4_4, ids=[row[1] for row in KAFKA_4_4])
def test_name_versions_and_flexibility_are_kafkas(key: int, name: str, versions: str, flexible: int) -> None:
    api = APIS[key]
    assert (api.key, api.name, str(api.versions)) == (key, name, versions)
    for cls in (api.request, api.response):
        message = message_of(cls)
        assert message.key == key
        assert (message.flexible.first, message.flexible.last) == (flexible, LAST_VERSION)
    assert (message_of(api.request).name, message_of(api.response).name) == (f"{name}Request", f"{name}Response")
