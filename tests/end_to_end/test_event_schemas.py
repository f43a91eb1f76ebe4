"""A stock Kafka producer and a topic with schemas: good records come in, a bad one keeps its batch out and is told."""

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kwire.node import Node
from tests.support.event_store import payloads_of
from tests.support.node import in_uvloop, running_node

SCHEMA = {"type": "numbered", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FLUSH_S = 30.0


def produce(node: Node, values: list[bytes], **more: object) -> list[int | None]:
    """The error of each record, if it has one; sent as one batch."""
    errors: list[int | None] = []

    def told(error: KafkaError | None, _: Message) -> None:
        errors.append(None if error is None else error.code())

    settings = {"bootstrap.servers": f"127.0.0.1:{node.kafka_listeners[0].port}", "linger.ms": 200, **more}
    producer = Producer(settings)
    for value in values:
        producer.produce("numbers", value, headers={"ce_type": "numbered"}, on_delivery=told)
    assert producer.flush(FLUSH_S) == 0
    return errors


@pytest.mark.proves("S2-1", "S2-15", "S2-31")
@pytest.mark.parametrize("compression", ["none", "zstd"])
@in_uvloop
async def test_a_stock_producer_is_held_to_the_schemas(tmp_path: Path, compression: str) -> None:
    async with running_node(tmp_path) as node:
        numbers = await node.event_topics.create("numbers", [SCHEMA])
        good = [json.dumps({"n": number}).encode() for number in range(3000)]
        for is_idempotent in (False, True):
            more = {"enable.idempotence": is_idempotent, "compression.type": compression}
            told = await asyncio.to_thread(produce, node, [*good[:5], b'{"n":"x"}', b"{"], **more)
            # It knows which records were at fault, and which only travelled with them.
            assert told == [KafkaError._INVALID_DIFFERENT_RECORD] * 5 + [KafkaError.INVALID_RECORD] * 2
            assert payloads_of(numbers) == []
        assert await asyncio.to_thread(produce, node, good, **more) == [None] * len(good)
        assert payloads_of(numbers) == [{"n": number} for number in range(3000)]
