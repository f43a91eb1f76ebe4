"""What admin clients that are not Java's make of a cluster of one node: elections, reassignments, quorum, features."""

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import KafkaError as ConfluentCode
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import (
    ElectionNotNeededError,
    InvalidReplicationAssignmentError,
    InvalidUpdateVersionError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from tests.support.clients import Topics
from tests.support.server import KwireProcess

CALL_TIMEOUT_S = 20.0
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def admin(kwire: KwireProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kwire.bootstrap)
    yield client
    client.close()


def test_kafka_python_elects_nobody(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.create("python-election", partitions=2)
    for kind in (PREFERRED, UNCLEAN):
        answer = admin.elect_leaders(kind, {topic: [0, 1]})
        ((_, results),) = ((one.topic, one.partition_result) for one in answer.replica_election_results)
        assert {one.error_code for one in results} == {ElectionNotNeededError.errno}
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(PREFERRED, {topic: [2]})


def test_confluent_elects_nobody(kwire: KwireProcess, topics: Topics) -> None:
    topic = topics.create("confluent-election")
    client = AdminClient({"bootstrap.servers": kwire.bootstrap})
    partitions = [ConfluentPartition(topic, 0), ConfluentPartition(topic, 1)]
    future = client.elect_leaders(ElectionType.PREFERRED, partitions)
    found = {one.partition: error.code() for one, error in future.result(CALL_TIMEOUT_S).items()}
    assert found == {0: ConfluentCode.ELECTION_NOT_NEEDED, 1: ConfluentCode.UNKNOWN_TOPIC_OR_PART}


def test_kafka_python_reassigns_only_to_where_replicas_are(admin: KafkaAdminClient, topics: Topics) -> None:
    topic = topics.create("python-reassign", partitions=3)
    zero, one, two = (TopicPartition(topic, index) for index in range(3))
    answer = admin.alter_partition_reassignments({zero: [1], one: [1, 2], two: None})
    assert answer == {zero: None, one: InvalidReplicationAssignmentError, two: NoReassignmentInProgressError}
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments({topic: [0, 1]}) == {}


def test_kafka_python_describes_the_quorum(admin: KafkaAdminClient) -> None:
    answer = admin.describe_metadata_quorum()
    ((described,),) = (topic["partitions"] for topic in answer["topics"])
    (voter,) = described["current_voters"]
    assert (described["leader_id"], voter["replica_id"]) == (1, 1)
    assert voter["log_end_offset"] == described["high_watermark"] > 0
    assert (described["observers"], described["error"]) == ([], None)


def test_kafka_python_describes_features_and_cannot_lower_them(admin: KafkaAdminClient) -> None:
    described = admin.describe_features()
    level = described["metadata.version"]
    lowest, highest = level["supported"]
    assert level["finalized"] == (highest, highest)
    assert level["finalized_epoch"] > 0
    assert admin.update_features({"metadata.version": highest}) == {"metadata.version": "OK"}
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"metadata.version": ("SAFE_DOWNGRADE", lowest - 1)})
    assert admin.describe_features() == described


def test_confluent_describes_the_cluster(kwire: KwireProcess) -> None:
    client = AdminClient({"bootstrap.servers": kwire.bootstrap})
    described = client.describe_cluster(request_timeout=CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
    assert [(node.id, node.host, node.port) for node in described.nodes] == [(1, *kwire.kafka_address)]
    assert described.controller.id == 1
