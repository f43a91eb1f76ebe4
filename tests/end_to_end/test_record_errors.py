"""A stock producer is told which of its records were at fault: as in librdkafka's own test 0011."""

from confluent_kafka import KafkaError, Producer

from tests.support.clients import DEADLINE_S, Topics, read_values
from tests.support.server import Broker

COUNT = 100
# Each tenth record has no key.
EVERY = 10


def test_records_without_a_key_fail_for_it_and_the_others_of_their_batch_do_not(broker: Broker, topics: Topics) -> None:
    topic = topics.create("record-errors", configs={"cleanup.policy": "compact"})
    told: dict[bytes, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 200, "acks": "all"})
    for number in range(COUNT):
        producer.produce(
            topic,
            key=None if number % EVERY == 0 else b"key",
            value=str(number).encode(),
            partition=0,
            on_delivery=lambda error, message: told.update({message.value(): error}),
        )
    assert producer.flush(DEADLINE_S) == 0
    codes = {int(value): error.code() if error is not None else None for value, error in told.items()}
    assert codes == {
        number: KafkaError.INVALID_RECORD if number % EVERY == 0 else KafkaError._INVALID_DIFFERENT_RECORD
        for number in range(COUNT)
    }
    assert read_values(broker.bootstrap, topic) == []
