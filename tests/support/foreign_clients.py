"""Transactions of other clients, as tests of remote logs need them."""

from collections.abc import Sequence

from aiokafka import AIOKafkaProducer


class ForeignTransactions:
    """Transactional producers that are not the remote log's."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._producers: dict[int, AIOKafkaProducer] = {}
        self._open: set[int] = set()

    async def send(self, topic: str, number: int, values: Sequence[bytes], at_ms: int) -> None:
        """One batch of the transaction of producer `number`."""
        producer = self._producers.get(number)
        if producer is None:
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=f"{self._prefix}-{number}")
            self._producers[number] = producer
            await producer.start()
        if number not in self._open:
            await producer.begin_transaction()
            self._open.add(number)
        batch = producer.create_batch()
        for value in values:
            batch.append(key=None, value=value, timestamp=at_ms)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))

    async def end(self, number: int, *, is_commit: bool) -> None:
        self._open.discard(number)
        producer = self._producers[number]
        await (producer.commit_transaction() if is_commit else producer.abort_transaction())

    async def stop(self) -> None:
        for number in list(self._open):
            await self.end(number, is_commit=False)
        for producer in self._producers.values():
            await producer.stop()
