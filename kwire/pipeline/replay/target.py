"""The topic that events are sent to, over the Kafka protocol: the one door that keeps keys, headers and timestamps.

Spark's own sink cannot set timestamps, so rounds go by kafka-python's idempotent producer.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.partitioner.default import murmur2
from kafka.serializer import Serializer

from kwire.pipeline.replay.event import CannotReplay, Record, ReplayEvent
from kwire.pipeline.replay.rounds import BATCH_BYTES_MAX, Round

KEEP, BY_KEY = "keep", "by-key"
PLACEMENTS = (KEEP, BY_KEY)

REQUEST_SECONDS_MAX = 30
DELIVERY_SECONDS_MAX = 120
# Longer than a round is being put together: a batch leaves when its round is complete, so there is one per partition.
LINGER_SECONDS = 60
POLL_MS = 1_000
# With nothing new for so long while the end is not reached, something is wrong with the server.
LOOK_SECONDS_MAX = 60


# Stands for a null value: kafka-python takes no null when the key is null too.
_NO_VALUE = object()


class _ValueOrNull(Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: object, value: object) -> object:
        return None if value is _NO_VALUE else value


class Target:
    """`place` says which of its partitions an event goes to."""

    def __init__(self, bootstrap: str, topic: str, placement: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._placement = placement
        with _told_as(f"{topic} on {bootstrap}"):
            self._admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_SECONDS_MAX * 1000)
        self._producer: Any = None
        try:
            self._learn()
        except BaseException:
            self.close()
            raise

    def _learn(self) -> None:
        with _told_as(f"{self.topic} on {self._bootstrap}"):
            (found,) = self._admin.describe_topics([self.topic])
            if found["error_code"]:
                raise CannotReplay(f"there is no topic {self.topic} to send to: make it first, with its settings")
            resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
            settings = self._admin.describe_configs([resource], config_filter="all")["topic"][self.topic]
        self.topic_id = str(found["topic_id"])
        self.partition_count = len(found["partitions"])
        self.settings: dict[str, str | None] = {name: one["value"] for name, one in settings.items()}
        largest = self.settings.get("max.message.bytes")
        self.batch_bytes = min(BATCH_BYTES_MAX, int(largest) // 2) if largest else BATCH_BYTES_MAX

    def check_keeps(self, oldest_ms: int, now_ms: int) -> None:
        """CannotReplay if the topic would change timestamps, or throw away at once what is sent."""
        if self.settings.get("message.timestamp.type") == "LogAppendTime":
            raise CannotReplay(f"{self.topic} has message.timestamp.type=LogAppendTime: it would not keep timestamps")
        retention_ms = int(self.settings.get("retention.ms") or -1)
        deletes = "delete" in (self.settings.get("cleanup.policy") or "delete")
        if deletes and 0 <= retention_ms < now_ms - oldest_ms:
            raise CannotReplay(
                f"the oldest event is older than retention.ms={retention_ms} of {self.topic}, which would delete it at "
                "once: set retention.ms=-1, or replay newer events only (--since)"
            )

    def place(self, event: ReplayEvent, partition_count: int | None = None) -> int:
        """`partition_count` is for a round of the time when the target had so many; now it may have more."""
        count = self.partition_count if partition_count is None else partition_count
        if self._placement == KEEP:
            if event.partition >= count:
                raise CannotReplay(
                    f"{event.name} has no partition to go to: {self.topic} has {count}. Add partitions, "
                    f"or send events where their keys belong (--partitions {BY_KEY})"
                )
            return event.partition
        if event.record.key is None:
            # One partition for all of a partition: they stay in order.
            return event.partition % count
        return int(murmur2(event.record.key) & 0x7FFF_FFFF) % count

    def is_empty(self) -> bool:
        return self._offsets(OffsetSpec.EARLIEST) == self.ends()

    def ends(self) -> dict[int, int]:
        return self._offsets(OffsetSpec.LATEST)

    def send(self, whole_round: Round) -> dict[int, int]:
        """All of it, acknowledged; by partition the offset behind the last one. CannotReplay names what was refused."""
        with _told_as(self.topic):
            sent = [
                (
                    event,
                    self._open_producer().send(
                        self.topic,
                        key=event.record.key,
                        value=_NO_VALUE if event.record.value is None else event.record.value,
                        headers=list(event.record.headers),
                        partition=partition,
                        timestamp_ms=event.record.timestamp_ms,
                    ),
                )
                for partition, event in whole_round.events
            ]
            self._open_producer().flush(timeout=DELIVERY_SECONDS_MAX + REQUEST_SECONDS_MAX)
        ends: dict[int, int] = {}
        for event, future in sent:
            with _told_as(f"{event.name}: {self.topic} did not take it"):
                placed = future.get(timeout=0)
            ends[placed.partition] = max(ends.get(placed.partition, 0), placed.offset + 1)
        return ends

    def landed(self, events: Sequence[tuple[int, ReplayEvent]], start: Mapping[int, int]) -> list[bool]:
        """Of each event of a round whether it is in its partition, at `start` or behind it."""
        partitions = {partition for partition, _ in events}
        wanted = Counter((partition, event.record) for partition, event in events)
        found: Counter[tuple[int, Record]] = Counter()
        for partition, record in self._records_since({partition: start[partition] for partition in partitions}):
            if (partition, record) in wanted:
                found[partition, record] += 1
        answers = []
        for partition, event in events:
            found[partition, event.record] -= 1
            answers.append(found[partition, event.record] >= 0)
        return answers

    def _records_since(self, start: Mapping[int, int]) -> Iterator[tuple[int, Record]]:
        """All up to the present end; CannotReplay if some of them are gone already, so that nobody can tell."""
        firsts, ends = self._offsets(OffsetSpec.EARLIEST), self.ends()
        for partition, offset in start.items():
            if firsts[partition] > offset:
                raise self._undecidable(partition, offset, firsts[partition])
        open_ones = {TopicPartition(self.topic, one): ends[one] for one, first in start.items() if first < ends[one]}
        if not open_ones:
            return
        is_compacted = "compact" in (self.settings.get("cleanup.policy") or "")
        with _told_as(f"{self.topic} on {self._bootstrap}"):
            # What is deleted meanwhile is an error: going on elsewhere would be passing over records.
            consumer = KafkaConsumer(
                bootstrap_servers=self._bootstrap, enable_auto_commit=False, auto_offset_reset="none"
            )
            try:
                consumer.assign(list(open_ones))
                for one in open_ones:
                    consumer.seek(one, start[one.partition])
                expected = {one: start[one.partition] for one in open_ones}
                deadline = time.monotonic() + LOOK_SECONDS_MAX
                while any(consumer.position(one) < end for one, end in open_ones.items()):
                    if time.monotonic() >= deadline:
                        raise CannotReplay(f"{self.topic} could not be read to its end within {LOOK_SECONDS_MAX} s")
                    for one, records in consumer.poll(timeout_ms=POLL_MS).items():
                        deadline = time.monotonic() + LOOK_SECONDS_MAX
                        for record in records:
                            if record.offset >= open_ones[one]:
                                break
                            # Elsewhere it is where a transaction of others ended: that has an offset and no record.
                            if is_compacted and record.offset != expected[one]:
                                raise self._undecidable(one.partition, expected[one], record.offset)
                            expected[one] = record.offset + 1
                            yield one.partition, _record_of(record)
            finally:
                consumer.close()

    def _undecidable(self, partition: int, first: int, end: int) -> CannotReplay:
        return CannotReplay(
            f"offsets {first} to {end - 1} of partition {partition} of {self.topic} are gone, by retention or by "
            "compaction: nobody can tell whether the round that was interrupted was there. Say whether to send it "
            "again: --in-doubt send, or --in-doubt skip"
        )

    def _offsets(self, which: Any) -> dict[int, int]:
        wanted = {TopicPartition(self.topic, one): which for one in range(self.partition_count)}
        with _told_as(f"{self.topic} on {self._bootstrap}"):
            return {one.partition: told.offset for one, told in self._admin.list_partition_offsets(wanted).items()}

    def _open_producer(self) -> Any:
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                enable_idempotence=True,
                # Never full before its round is: a round counts bytes generously.
                batch_size=2 * BATCH_BYTES_MAX,
                linger_ms=LINGER_SECONDS * 1000,
                delivery_timeout_ms=DELIVERY_SECONDS_MAX * 1000,
                request_timeout_ms=REQUEST_SECONDS_MAX * 1000,
                max_request_size=REQUEST_BYTES_MAX,
                value_serializer=_ValueOrNull(),
            )
        return self._producer

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=REQUEST_SECONDS_MAX)
        self._admin.close()


# What is too large is for the server to say.
REQUEST_BYTES_MAX = 1 << 30


@contextmanager
def _told_as(what: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, TypeError, AssertionError) as error:
        raise CannotReplay(f"{what}: {error}") from error


def _record_of(record: Any) -> Record:
    """A header without a value stays one: it is of others, for none is sent."""
    headers = tuple((name, value) for name, value in record.headers)
    return Record(record.key, record.value, record.timestamp, headers)
