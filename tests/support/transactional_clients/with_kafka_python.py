"""Transactions of kafka-python."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError
from kafka.net.inet import KafkaNetSocket

from tests.support.transactional_clients.interface import (
    CALL_TIMEOUT_S,
    HEARTBEAT_INTERVAL_MS,
    RECONNECT_MS_MAX,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Consumer,
    Place,
    Record,
    Refused,
)

# A poll that ends before the group is joined makes the client join anew, for ever if every poll is too short.
MEMBER_POLL_MS = 1_000
READER_POLL_MS = 100


class TidySocket(KafkaNetSocket):  # type: ignore[misc]
    """As the client's own, which leaves a socket open that was refused, as all are while a server restarts."""

    SCHEMES = ("tidy",)

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(repr(error)) from error


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            proxy_url="tidy://",
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(CALL_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        )
        with refusals():
            self._producer.init_transactions()

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        with refusals():
            self._sent.append(self._producer.send(topic, value=value.encode(), partition=partition))

    def flush(self) -> None:
        sent, self._sent = self._sent, []
        with refusals():
            for future in sent:
                future.get(timeout=CALL_TIMEOUT_S)

    def send_offsets(self, consumer: Consumer, offsets: Mapping[Place, int]) -> None:
        assert isinstance(consumer, KafkaPythonConsumer)
        with refusals():
            self._producer.send_offsets_to_transaction(
                {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()},
                consumer.client.group_metadata(),
            )

    def commit(self) -> None:
        self._sent.clear()
        with refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        self._sent.clear()
        with refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=CALL_TIMEOUT_S)


class KafkaPythonConsumer:
    def __init__(self, bootstrap: str, poll_ms: int, **settings: Any) -> None:
        self._poll_ms = poll_ms
        self.client: Any = KafkaConsumer(
            bootstrap_servers=bootstrap,
            proxy_url="tidy://",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=RECONNECT_MS_MAX,
            **settings,
        )

    def poll(self) -> list[Record]:
        with refusals():
            batches = self.client.poll(timeout_ms=self._poll_ms)
        return [
            Record(record.partition, record.offset, record.value.decode())
            for batch in batches.values()
            for record in batch
        ]

    def is_at_end(self) -> bool:
        (partition,) = self.client.assignment()
        with refusals():
            return bool(self.client.position(partition) == self.client.end_offsets([partition])[partition])

    def close(self) -> None:
        self.client.close(autocommit=False)


class KafkaPythonClients:
    waits_for_stable_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._closes: list[Callable[[], None]] = []

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> KafkaPythonProducer:
        producer = KafkaPythonProducer(self.bootstrap, transactional_id, timeout_ms)
        self._closes.append(producer.close)
        return producer

    def reader(self, place: Place, *, is_committed: bool = True) -> KafkaPythonConsumer:
        level = "read_committed" if is_committed else "read_uncommitted"
        consumer = KafkaPythonConsumer(self.bootstrap, READER_POLL_MS, isolation_level=level)
        self._closes.append(consumer.close)
        partition = TopicPartition(*place)
        consumer.client.assign([partition])
        consumer.client.seek_to_beginning(partition)
        return consumer

    def member(self, topic: str, group: str) -> KafkaPythonConsumer:
        consumer = KafkaPythonConsumer(
            self.bootstrap,
            MEMBER_POLL_MS,
            group_id=group,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        self._closes.append(consumer.close)
        consumer.client.subscribe([topic])
        return consumer

    def close(self) -> None:
        for close in self._closes:
            close()
