"""What a client knows of a cluster."""

from kwire.errors import ErrorCode
from kwire.kafka_client.metadata import NO_LEADER, NO_NODE, Metadata
from kwire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = bytes(15) + b"\x01", bytes(15) + b"\x02"


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=9000 + node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, controller_id=1, topics=list(topics))


def topic(leader: int, epoch: int, topic_id: bytes = ID, code: int = 0) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
    )
    return MetadataResponseTopic(error_code=code, name="t", topic_id=topic_id, partitions=[] if code else [partition])


def test_leaders_move_forward_only() -> None:
    metadata = Metadata()
    assert metadata.leader("t", 0) == NO_LEADER
    metadata.update(response(topic(1, 5)))
    assert metadata.leader("t", 0) == (1, 5)
    assert metadata.leader("t", 1) == NO_LEADER
    metadata.update(response(topic(2, 6)))
    # A broker that lags behind still names the former leader.
    metadata.update(response(topic(1, 5)))
    assert metadata.leader("t", 0) == (2, 6)
    # The topic was created again, and its epochs begin again.
    metadata.update(response(topic(1, 0, OTHER_ID)))
    assert metadata.leader("t", 0) == (1, 0)
    assert metadata.topics["t"].replication_factor == 2


def test_a_broker_that_does_not_lead_is_not_asked_again() -> None:
    metadata = Metadata()
    metadata.update(response(topic(1, 5)))
    metadata.lose_leader("t", 0, 2)
    assert metadata.leader("t", 0) == (1, 5)
    metadata.lose_leader("t", 0, 1)
    assert metadata.leader("t", 0) == (NO_NODE, 5)
    metadata.update(response(topic(1, 5)))
    assert metadata.leader("t", 0) == (1, 5)


def test_a_missing_topic_is_counted_until_it_is_there() -> None:
    metadata = Metadata()
    missing = topic(0, 0, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    metadata.update(response(topic(1, 5)))
    metadata.update(response(missing))
    metadata.update(response(missing))
    assert metadata.missing == {"t": 2}
    assert metadata.leader("t", 0) == (1, 5)
    metadata.update(response(topic(1, 5)))
    assert metadata.missing == {}
    metadata.update(response(topic(0, 0, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    assert metadata.errors == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    metadata.forget("t")
    assert (metadata.topics, metadata.errors) == ({}, {})
