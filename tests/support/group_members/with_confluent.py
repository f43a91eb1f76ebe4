"""A member that is a confluent-kafka consumer: librdkafka."""

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.group_members.language import (
    arguments,
    say,
    say_partitions,
    say_refused,
    wish_to_end,
)

POLL_S = 0.2
BATCH_RECORDS_MAX = 100


def main() -> None:
    topic, settings = arguments()
    wish = wish_to_end()
    consumer = Consumer(
        {"enable.auto.commit": False, "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 1_000, **settings}
    )

    def assigned(_: Any, partitions: list[Any]) -> None:
        say_partitions("assigned", [partition.partition for partition in partitions])

    def revoked(_: Any, partitions: list[Any]) -> None:
        say_partitions("revoked", [partition.partition for partition in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not wish.is_set():
        offsets: dict[int, list[int]] = {}
        for message in consumer.consume(BATCH_RECORDS_MAX, POLL_S):
            if message.error() is not None:
                say_refused(message.error())
                continue
            offsets.setdefault(message.partition(), []).append(message.offset())
        for partition, processed in offsets.items():
            say("processed", partition, *processed)
        if not offsets:
            continue
        wanted = [TopicPartition(topic, partition, processed[-1] + 1) for partition, processed in offsets.items()]
        try:
            answered = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            say_refused(error)
            continue
        for answer in answered:
            if answer.error is not None:
                say_refused(answer.error)
            else:
                say("committed", answer.partition, answer.offset)
    consumer.close()


if __name__ == "__main__":
    main()
