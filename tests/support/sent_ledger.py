"""What a producer sent and what it was told, and whether a topic holds just that: nothing lost, doubled or moved."""

import threading

from tests.support.clients import read_topic

# The producer may be this far ahead of what is acknowledged.
UNACKNOWLEDGED_MAX = 2_000


class SentLedger:
    """What was sent to each partition, in order, and what the producer was told about each record."""

    def __init__(self, partitions: int) -> None:
        self.sent: list[list[bytes]] = [[] for _ in range(partitions)]
        self.acknowledged: list[dict[bytes, int]] = [{} for _ in range(partitions)]
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def next_value(self, partition: int, size_bytes: int = 0) -> bytes:
        value = f"{partition}-{len(self.sent[partition])}".encode().ljust(size_bytes, b".")
        self.sent[partition].append(value)
        return value

    def acknowledge(self, partition: int, value: bytes, offset: int) -> None:
        with self._lock:
            if value in self.acknowledged[partition]:
                self.failures.append(f"{value!r} was acknowledged twice")
            self.acknowledged[partition][value] = offset

    def fail(self, reason: object) -> None:
        with self._lock:
            self.failures.append(str(reason))

    @property
    def sent_count(self) -> int:
        return sum(map(len, self.sent))

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged))

    def has_room(self) -> bool:
        return self.sent_count - self.acknowledged_count - len(self.failures) < UNACKNOWLEDGED_MAX

    def check_complete(self, bootstrap: str, topic: str) -> None:
        """Everything sent was acknowledged in the end, so the topic is what was sent, in that order."""
        assert self.failures == []
        found = read_topic(bootstrap, topic)
        for partition, sent in enumerate(self.sent):
            values = [record.value for record in found[partition]]
            assert len(values) == len(sent)
            assert values == sent
            offsets = {record.value: record.offset for record in found[partition]}
            assert offsets == self.acknowledged[partition]
        print(f"{self.acknowledged_count} records acknowledged and found, 0 lost, 0 doubled, 0 moved")

    def check_acknowledged(self, bootstrap: str, topic: str) -> None:
        """Some were refused: what was acknowledged is there under its offset, once, and in the order it was sent."""
        assert self.failures == []
        found = read_topic(bootstrap, topic)
        for partition, sent in enumerate(self.sent):
            offsets = {record.value: record.offset for record in found[partition]}
            assert len(offsets) == len(found[partition]), "a record is there twice"
            lost = [value for value in self.acknowledged[partition] if value not in offsets]
            assert lost == []
            assert {value: offsets[value] for value in self.acknowledged[partition]} == self.acknowledged[partition]
            in_order = [value for value in sent if value in offsets]
            assert [record.value for record in found[partition]] == in_order
