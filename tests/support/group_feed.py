"""Records for a group to process: a producer that goes on, slowly, until it is stopped, whatever the server does."""

import threading
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

ROUND_INTERVAL_S = 0.02
FLUSH_TIMEOUT_S = 60.0


class GroupFeed:
    """Sends to every partition of a topic in turn, from a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        # One more than the last acknowledged offset of each partition.
        self.ends = dict.fromkeys(range(partitions), 0)
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> "GroupFeed":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(FLUSH_TIMEOUT_S)

    def stop(self) -> dict[int, int]:
        """Send no more, wait until all is acknowledged, and tell where each partition ends."""
        self._done.set()
        self._thread.join(FLUSH_TIMEOUT_S)
        assert self._producer.flush(FLUSH_TIMEOUT_S) == 0
        assert self.failures == []
        return dict(self.ends)

    def _feed(self) -> None:
        while not self._done.wait(ROUND_INTERVAL_S):
            for partition in self.ends:
                self._producer.produce(self.topic, value=b"work", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.failures.append(str(error))
        else:
            self.ends[partition] = max(self.ends[partition], offset + 1)
