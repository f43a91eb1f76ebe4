"""The requests of the captured clients: produce with every codec, consume in groups, and admin requests."""

import asyncio
import contextlib
import sys
from typing import Any

RECORDS = 4
TIMEOUT_S = 15.0
TIMEOUT_MS = 15_000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def run_kafka_python(bootstrap: str) -> None:
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=TIMEOUT_MS)
    resources = [ConfigResource(ConfigResourceType.TOPIC, "python")]
    changed = [ConfigResource(ConfigResourceType.TOPIC, "python", {"retention.ms": "60000"})]
    partition = kafka.TopicPartition("python", 0)
    admin.create_topics({"python": {"num_partitions": 2, "configs": {"retention.ms": "1000000"}}})
    for codec in CODECS:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
        for number in range(RECORDS):
            producer.send("python", key=b"k", value=b"value %d" % number, headers=[("h", b"1")])
        producer.close(timeout=TIMEOUT_S)
    consumer = kafka.KafkaConsumer(
        "python", bootstrap_servers=bootstrap, group_id="python", auto_offset_reset="earliest", consumer_timeout_ms=3000
    )
    for _ in range(RECORDS):
        next(consumer)
    consumer.commit()
    consumer.offsets_for_times({partition: 0})
    consumer.close()
    asked: list[Any] = [
        lambda: admin.describe_configs(resources),
        lambda: admin.alter_configs(changed),
        lambda: admin.create_partitions({"python": 3}),
        lambda: admin.describe_topics(["python", "nothing"]),
        lambda: admin.describe_cluster(),
        lambda: admin.list_group_offsets("python"),
        lambda: admin.list_groups(),
        lambda: admin.describe_groups(["python"]),
        lambda: admin.describe_log_dirs(),
        lambda: admin.delete_records({partition: 1}),
        lambda: admin.delete_groups(["python"]),
        lambda: admin.delete_topics(["python"]),
    ]
    for ask in asked:
        # The client does not send requests that the server does not support, so they are not in the corpus.
        try:
            ask()
        except (KafkaError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
            _tell_refused("kafka-python", error)
    admin.close()


def run_confluent(bootstrap: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entry = ConfigEntry("retention.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    partition = TopicPartition("confluent", 0)
    asked: list[Any] = [
        lambda: admin.create_topics([NewTopic("confluent", 2, 1, config={"cleanup.policy": "compact"})]),
        lambda: admin.describe_configs([ConfigResource(ResourceType.TOPIC, "confluent")]),
        lambda: admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "confluent", incremental_configs=[entry])]
        ),
        lambda: admin.alter_configs([ConfigResource(ResourceType.TOPIC, "confluent", {"retention.ms": "70000"})]),
        lambda: admin.create_partitions([NewPartitions("confluent", 3)]),
        lambda: admin.list_offsets({partition: OffsetSpec.latest()}),
        lambda: {None: admin.describe_cluster()},
        lambda: {None: admin.list_consumer_groups()},
        lambda: admin.describe_consumer_groups(["confluent"]),
        lambda: admin.delete_records([TopicPartition("confluent", 0, 1)]),
    ]
    _ask_all(asked, KafkaException)
    for codec in CODECS:
        options = {"bootstrap.servers": bootstrap, "compression.type": codec or "none", "linger.ms": 20, "log_level": 0}
        producer = Producer({**options, "enable.idempotence": codec == "zstd"})
        for number in range(RECORDS):
            producer.produce("confluent", value=b"value %d" % number, key=b"k", headers={"h": b"1"})
        producer.flush(TIMEOUT_S)
    for assignor in ("range", "cooperative-sticky"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": assignor,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": assignor,
                "log_level": 0,
            }
        )
        consumer.subscribe(["confluent"])
        consumer.consume(RECORDS, timeout=TIMEOUT_S / 3)
        with contextlib.suppress(KafkaException):
            consumer.commit(asynchronous=False)
        consumer.close()
    _ask_all([lambda: admin.delete_topics(["confluent"])], KafkaException)


def _ask_all(asked: list[Any], failure: type[Exception]) -> None:
    for ask in asked:
        for answer in ask().values():
            with contextlib.suppress(failure):
                answer.result(TIMEOUT_S)


def run_aiokafka(bootstrap: str) -> None:
    asyncio.run(asyncio.wait_for(_aiokafka(bootstrap), 4 * TIMEOUT_S))


async def _aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("aio", 1, 1)])
    for is_idempotent in (False, True):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=is_idempotent)
        await producer.start()
        for number in range(RECORDS):
            await producer.send_and_wait("aio", b"value %d" % number, key=b"k")
        await producer.stop()
    consumer = AIOKafkaConsumer("aio", bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest")
    await consumer.start()
    for _ in range(RECORDS):
        await consumer.getone()
    await consumer.commit()
    await consumer.stop()
    asked: list[Any] = [
        lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "aio")]),
        lambda: admin.list_consumer_groups(),
        lambda: admin.describe_consumer_groups(["aio"]),
        lambda: admin.list_consumer_group_offsets("aio"),
        lambda: admin.delete_topics(["aio"]),
    ]
    for ask in asked:
        try:
            await ask()
        except (KafkaError, ValueError, NotImplementedError) as error:
            _tell_refused("aiokafka", error)
    await admin.close()


def _tell_refused(client: str, error: Exception) -> None:
    """Print a failed request. If the client itself raised the error, the request was not sent and is not captured."""
    print(f"{client} was refused: {error!r}", file=sys.stderr)


CLIENTS = {"kafka-python": run_kafka_python, "confluent-kafka": run_confluent, "aiokafka": run_aiokafka}
