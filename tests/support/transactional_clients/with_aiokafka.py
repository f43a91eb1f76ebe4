"""Transactions of aiokafka, whose loop runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.support.transactional_clients.interface import (
    CALL_TIMEOUT_S,
    HEARTBEAT_INTERVAL_MS,
    POLL_MS,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Consumer,
    Place,
    Record,
    Refused,
)

Value = TypeVar("Value")


class LoopThread:
    """An event loop that other threads can ask to run something."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, made: Callable[[], Awaitable[Value]]) -> Value:
        """`made` is called in the loop, because clients ask for the running loop when they are made."""

        async def bounded() -> Value:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await made()

        try:
            return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result(CALL_TIMEOUT_S + 5)
        except (KafkaError, TimeoutError) as error:
            raise Refused(repr(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()


class AioProducer:
    def __init__(self, loop: LoopThread, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._sent: list[Any] = []

        async def made() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            # The client starts to initialise here and waits for it when a transaction begins.
            await producer._txn_manager.wait_for_pid()
            return producer

        self._producer = loop.run(made)

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction)

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self._loop.run(lambda: self._producer.send(topic, value=value.encode(), partition=partition)))

    def flush(self) -> None:
        sent, self._sent = self._sent, []

        async def answered() -> None:
            await asyncio.gather(*sent)

        self._loop.run(answered)

    def send_offsets(self, consumer: Consumer, offsets: Mapping[Place, int]) -> None:
        assert isinstance(consumer, AioConsumer)
        assert consumer.group is not None
        by_partition = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._loop.run(lambda: self._producer.send_offsets_to_transaction(by_partition, consumer.group))

    def commit(self) -> None:
        self._sent.clear()
        self._loop.run(self._producer.commit_transaction)

    def abort(self) -> None:
        self._sent.clear()
        try:
            self._loop.run(self._producer.abort_transaction)
        except AssertionError as error:
            # After an error that is final the client's own state machine objects to an abort, by an assertion.
            raise Refused(str(error)) from error

    def close(self) -> None:
        self._loop.run(self._producer.stop)


class AioConsumer:
    def __init__(self, loop: LoopThread, bootstrap: str, group: str | None, **settings: Any) -> None:
        self._loop = loop
        self.group = group

        async def made() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **settings,
            )
            await consumer.start()
            return consumer

        self.client = loop.run(made)

    def assign(self, place: Place) -> None:
        partition = TopicPartition(*place)

        async def assigned() -> None:
            self.client.assign([partition])
            await self.client.seek_to_beginning(partition)

        self._loop.run(assigned)

    def subscribe(self, topic: str) -> None:
        async def subscribed() -> None:
            self.client.subscribe([topic])

        self._loop.run(subscribed)

    def poll(self) -> list[Record]:
        batches = self._loop.run(lambda: self.client.getmany(timeout_ms=POLL_MS))
        return [
            Record(record.partition, record.offset, record.value.decode())
            for batch in batches.values()
            for record in batch
        ]

    def is_at_end(self) -> bool:
        (partition,) = self.client.assignment()
        ends = self._loop.run(lambda: self.client.end_offsets([partition]))
        return bool(self._loop.run(lambda: self.client.position(partition)) == ends[partition])

    def close(self) -> None:
        self._loop.run(self.client.stop)


class AioKafkaClients:
    # The client speaks versions of the protocol that do not know how to ask for it.
    waits_for_stable_offsets = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = LoopThread()
        self._closes: list[Callable[[], None]] = []

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> AioProducer:
        producer = AioProducer(self._loop, self.bootstrap, transactional_id, timeout_ms)
        self._closes.append(producer.close)
        return producer

    def reader(self, place: Place, *, is_committed: bool = True) -> AioConsumer:
        level = "read_committed" if is_committed else "read_uncommitted"
        consumer = AioConsumer(self._loop, self.bootstrap, None, isolation_level=level)
        self._closes.append(consumer.close)
        consumer.assign(place)
        return consumer

    def member(self, topic: str, group: str) -> AioConsumer:
        consumer = AioConsumer(
            self._loop,
            self.bootstrap,
            group,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        self._closes.append(consumer.close)
        consumer.subscribe(topic)
        return consumer

    def close(self) -> None:
        for close in self._closes:
            close()
        self._loop.close()
