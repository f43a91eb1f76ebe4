"""Use a server as a new user does: produce and consume with a Kafka client, publish and subscribe with kwire's client.

Run in the empty environment, with the addresses for Kafka and HTTP; checked by mypy --strict there.
"""

import asyncio
import sys
import urllib.request

from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

from kwire.client import AsyncClient, Client, Event, Position, StoredEvent

COUNT = 100


def produce_and_consume(bootstrap_server: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_server, compression_type="zstd")
    for number in range(COUNT):
        producer.send("numbers", str(number).encode())
    producer.close(30)
    consumer = KafkaConsumer(
        "numbers", bootstrap_servers=bootstrap_server, group_id="trial", auto_offset_reset="earliest"
    )
    values = [int(next(consumer).value) for _ in range(COUNT)]
    consumer.close()
    assert values == list(range(COUNT)), values


async def publish_and_subscribe(url: str) -> Position | None:
    async with AsyncClient(url) as client:
        await client.stream.publish("lobby", "said", {"text": "hello"})
        seen: list[Event] = []
        async for event in client.stream.subscribe("lobby", from_offset=0):
            seen.append(event)
            break
        assert seen[0].data == {"text": "hello"}
        await client.events.create_topic("orders", {"order.placed": {"type": "object", "required": ["total"]}})
        await client.events.publish("orders", "order.placed", {"total": 12.5})
        async with client.events.subscribe_all(from_position="oldest") as orders:
            order: StoredEvent = await orders.next_event(timeout_s=30)
            assert order.payload == {"total": 12.5}
            return orders.position


def use_without_event_loop(url: str) -> None:
    with Client(url) as client, client.stream.subscribe("lobby", from_offset=0) as subscription:
        event: Event = subscription.next_event(timeout_s=30)
        assert event.type == "said"


def main() -> None:
    bootstrap_server, url = sys.argv[1:]
    produce_and_consume(bootstrap_server)
    assert asyncio.run(publish_and_subscribe(url)) is not None
    use_without_event_loop(url)
    for page in ("/docs", "/kwire.js", "/openapi.json", "/metrics"):
        with urllib.request.urlopen(url + page, timeout=30) as answer:
            assert answer.status == 200
            assert answer.read()


if __name__ == "__main__":
    main()
