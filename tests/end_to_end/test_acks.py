"""What a stock producer finds after an acknowledgement."""

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.clients import Topics
from tests.support.server import Broker

ROUNDS = 150
DEADLINE_S = 30.0


@pytest.mark.parametrize("acks", [1, "all"])
def test_an_acknowledged_record_is_below_the_end_offset(broker: Broker, topics: Topics, acks: int | str) -> None:
    place = TopicPartition(topics.create(f"acks-end-{acks}"), 0)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks=acks, enable_idempotence=False)
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        for number in range(ROUNDS):
            producer.send(place.topic, b"value", partition=0).get(timeout=DEADLINE_S)
            assert reader.end_offsets([place])[place] == number + 1
    finally:
        producer.close(timeout=DEADLINE_S)
        reader.close()
