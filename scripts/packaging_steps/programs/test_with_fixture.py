"""A test as users of the pytest plugin write it. Run in the empty environment, and checked by mypy --strict there."""

from kafka import KafkaProducer  # type: ignore[import-untyped]

from kwire.testing import KwireServer


def test_a_producer_survives_a_change_of_leader(kwire_server: KwireServer) -> None:
    kwire_server.create_topic("orders", partitions=3)
    fault = kwire_server.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = KafkaProducer(bootstrap_servers=kwire_server.bootstrap_server, retry_backoff_ms=10)
    producer.send("orders", b"one").get(timeout=30)
    producer.close(30)
    assert fault.hits == 2
    assert sum(kwire_server.end_offsets("orders")) == 1
