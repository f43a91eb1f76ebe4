"""Stock Kafka clients and topics of the event store: they write through the journal and read as anywhere."""

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.support.event_store import all_events, draft, events_of
from tests.support.node import in_uvloop, running_node
from tests.support.open_topics import create_open

RECORDS = 2000
POLL_S = 20.0


def produce(bootstrap: str, topic: str) -> list[KafkaError | None]:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told.append(error)

    for number in range(RECORDS):
        producer.produce(topic, json.dumps(number).encode(), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(POLL_S) == 0
    return told


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count, POLL_S)
        assert messages, f"only {len(values)} of {count} records came"
        values += [message.value() or b"" for message in messages if message.error() is None]
    consumer.close()
    return values


@pytest.mark.proves("S2-1", "S2-40")
@in_uvloop
async def test_a_stock_producer_and_a_publisher_share_a_topic_and_its_order(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        topics = node._shared.services.topics
        (orders,) = await create_open(topics, "orders")
        bootstrap = f"127.0.0.1:{node.kafka_listeners[0].port}"
        producing = asyncio.create_task(asyncio.to_thread(produce, bootstrap, "orders"))
        published = 0
        while not producing.done():
            await node.event_store.publish([draft("orders", "published")])
            published += 1
        assert await producing == [None] * RECORDS
        values = await asyncio.to_thread(consume, bootstrap, "orders", RECORDS + published)
        numbers = [value for value in map(json.loads, values) if value != "published"]
        assert numbers == list(range(RECORDS))
        everything = all_events(node.event_store, topics)
        assert [event.event_id for event in everything] == [f"orders-{n + 1}" for n in range(RECORDS + published)]
        assert [event.data for event in everything] == [event.data for event in events_of(orders)] == values
