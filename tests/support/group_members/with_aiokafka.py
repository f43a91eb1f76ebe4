"""A member that is an aiokafka consumer."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError

from tests.support.group_members.language import (
    arguments,
    python_settings,
    say,
    say_partitions,
    say_refused,
    wish_to_end,
)

POLL_MS = 200


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        say_partitions("assigned", [partition.partition for partition in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        say_partitions("revoked", [partition.partition for partition in revoked])


async def work() -> None:
    topic, settings = arguments()
    wish = wish_to_end()
    consumer = AIOKafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **python_settings(settings))
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not wish.is_set():
        batches = await consumer.getmany(timeout_ms=POLL_MS)
        for partition, records in batches.items():
            say("processed", partition.partition, *(record.offset for record in records))
        ends = {partition: records[-1].offset + 1 for partition, records in batches.items()}
        if not ends:
            continue
        try:
            await consumer.commit(ends)
        except KafkaError as error:
            say_refused(repr(error))
        else:
            for partition, end in ends.items():
                say("committed", partition.partition, end)
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(work())
