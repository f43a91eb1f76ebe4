"""The target topic of a replay. Rounds are sent with kafka-python's idempotent producer.

Spark's Kafka sink is not used, because it cannot set timestamps.
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
from kwire.pipeline.server import Server
from kwire.pipeline.topic_facts import DESCRIBE_CONFIGS, WRITE, TopicMissing, check_described

KEEP, BY_KEY = "keep", "by-key"
PLACEMENTS = (KEEP, BY_KEY)

REQUEST_SECONDS_MAX = 30
DELIVERY_SECONDS_MAX = 120
# This is longer than it takes to pass all events of a round to the producer. So the producer sends the batches only at
# `flush`, when the round is complete, and there is one batch per partition.
LINGER_SECONDS = 60
POLL_MS = 1_000
# The target is read up to its end. If no record arrives for this time, the read fails.
READ_SECONDS_MAX = 60


# Stands for a null value, because kafka-python refuses a record whose key and value are both None.
_NO_VALUE = object()


class _ValueOrNull(Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: object, value: object) -> object:
        return None if value is _NO_VALUE else value


class Target:
    """The target topic: its settings, and the producer that sends rounds to it."""

    def __init__(self, server: Server, topic: str, placement: str) -> None:
        self.topic = topic
        self._server = server
        self._placement = placement
        with _as_cannot_replay(f"{topic} on {server.bootstrap}"):
            self._admin = KafkaAdminClient(
                **server.kafka_python_options(), request_timeout_ms=REQUEST_SECONDS_MAX * 1000
            )
        self._producer: Any = None
        try:
            self._load_topic()
        except BaseException:
            self.close()
            raise

    def _load_topic(self) -> None:
        with _as_cannot_replay(f"{self.topic} on {self._server.bootstrap}"):
            (described,) = self._admin.describe_topics([self.topic])
            try:
                found = check_described(described, self.topic, self._server, WRITE, DESCRIBE_CONFIGS)
            except TopicMissing:
                raise CannotReplay(
                    f"the target topic {self.topic} does not exist: create it first, with its settings"
                ) from None
            resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
            settings = self._admin.describe_configs([resource], config_filter="all")["topic"][self.topic]
        self.topic_id = str(found["topic_id"])
        self.partition_count = len(found["partitions"])
        self.settings: dict[str, str | None] = {name: one["value"] for name, one in settings.items()}
        largest = self.settings.get("max.message.bytes")
        self.batch_bytes = min(BATCH_BYTES_MAX, int(largest) // 2) if largest else BATCH_BYTES_MAX

    def check_retains(self, oldest_ms: int, now_ms: int) -> None:
        """Raise CannotReplay if the topic would replace the events' timestamps or delete the events immediately."""
        if self.settings.get("message.timestamp.type") == "LogAppendTime":
            raise CannotReplay(
                f"topic {self.topic} has message.timestamp.type=LogAppendTime, which would replace timestamps"
            )
        retention_ms = int(self.settings.get("retention.ms") or -1)
        deletes = "delete" in (self.settings.get("cleanup.policy") or "delete")
        if deletes and 0 <= retention_ms < now_ms - oldest_ms:
            raise CannotReplay(
                f"the oldest event is older than retention.ms={retention_ms} of topic {self.topic}, which would delete "
                "it immediately: set retention.ms=-1, or replay only newer events (--since)"
            )

    def partition_for(self, event: ReplayEvent, partition_count: int | None = None) -> int:
        """Return the target partition of an event.

        For an interrupted round, `partition_count` is the number of partitions when the round was first sent.
        """
        count = self.partition_count if partition_count is None else partition_count
        if self._placement == KEEP:
            if event.partition >= count:
                raise CannotReplay(
                    f"{event.name}: topic {self.topic} has only {count} partitions. Add partitions, "
                    f"or select partitions by key (--partitions {BY_KEY})"
                )
            return event.partition
        if event.record.key is None:
            # To keep the order, all events without a key from one source partition go to one target partition.
            return event.partition % count
        return int(murmur2(event.record.key) & 0x7FFF_FFFF) % count

    def is_empty(self) -> bool:
        return self._offsets(OffsetSpec.EARLIEST) == self.ends()

    def ends(self) -> dict[int, int]:
        return self._offsets(OffsetSpec.LATEST)

    def send(self, whole_round: Round) -> dict[int, int]:
        """Send a round and wait for the acknowledgements. Return the new end offset of each partition of the round.

        If an event is refused, CannotReplay is raised, and its message names the event.
        """
        with _as_cannot_replay(self.topic):
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
            with _as_cannot_replay(f"{event.name}: topic {self.topic} refused the event"):
                appended = future.get(timeout=0)
            ends[appended.partition] = max(ends.get(appended.partition, 0), appended.offset + 1)
        return ends

    def find_sent(self, events: Sequence[tuple[int, ReplayEvent]], start: Mapping[int, int]) -> list[bool]:
        """Return for each event of a round whether its target partition contains it, at or after the `start` offset."""
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
        """Yield all records from `start` to the current end. Raises CannotReplay if some of them were deleted."""
        firsts, ends = self._offsets(OffsetSpec.EARLIEST), self.ends()
        for partition, offset in start.items():
            if firsts[partition] > offset:
                raise self._undecidable(partition, offset, firsts[partition])
        open_ones = {TopicPartition(self.topic, one): ends[one] for one, first in start.items() if first < ends[one]}
        if not open_ones:
            return
        is_compacted = "compact" in (self.settings.get("cleanup.policy") or "")
        with _as_cannot_replay(f"{self.topic} on {self._server.bootstrap}"):
            # If records are deleted during the read, the consumer must fail. An offset reset would skip records.
            consumer = KafkaConsumer(
                **self._server.kafka_python_options(), enable_auto_commit=False, auto_offset_reset="none"
            )
            try:
                consumer.assign(list(open_ones))
                for one in open_ones:
                    consumer.seek(one, start[one.partition])
                expected = {one: start[one.partition] for one in open_ones}
                deadline = time.monotonic() + READ_SECONDS_MAX
                while any(consumer.position(one) < end for one, end in open_ones.items()):
                    if time.monotonic() >= deadline:
                        raise CannotReplay(
                            f"topic {self.topic} returned no records for {READ_SECONDS_MAX} s before its end"
                        )
                    for one, records in consumer.poll(timeout_ms=POLL_MS).items():
                        deadline = time.monotonic() + READ_SECONDS_MAX
                        for record in records:
                            if record.offset >= open_ones[one]:
                                break
                            # In a compacted topic, skipped offsets belong to records that compaction removed. In other
                            # topics they belong to transaction markers, which the consumer does not return.
                            if is_compacted and record.offset != expected[one]:
                                raise self._undecidable(one.partition, expected[one], record.offset)
                            expected[one] = record.offset + 1
                            yield one.partition, _record_of(record)
            finally:
                consumer.close()

    def _undecidable(self, partition: int, first: int, end: int) -> CannotReplay:
        return CannotReplay(
            f"topic {self.topic}: offsets {first} to {end - 1} of partition {partition} were deleted by retention or "
            "compaction, so it is unknown whether the interrupted round was appended. Decide whether to send it again: "
            "--in-doubt send, or --in-doubt skip"
        )

    def _offsets(self, which: Any) -> dict[int, int]:
        wanted = {TopicPartition(self.topic, one): which for one in range(self.partition_count)}
        with _as_cannot_replay(f"{self.topic} on {self._server.bootstrap}"):
            return {one.partition: found.offset for one, found in self._admin.list_partition_offsets(wanted).items()}

    def _open_producer(self) -> Any:
        if self._producer is None:
            self._producer = KafkaProducer(
                **self._server.kafka_python_options(),
                acks="all",
                enable_idempotence=True,
                # The producer's batch size is never reached before the round is complete. A round limits its batches
                # to BATCH_BYTES_MAX, and `ReplayEvent.size_bytes` is an upper bound.
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


# The producer does not limit the size of a request. The server decides whether a batch is too large.
REQUEST_BYTES_MAX = 1 << 30


@contextmanager
def _as_cannot_replay(context: str) -> Iterator[None]:
    """Convert errors of kafka-python to CannotReplay."""
    try:
        yield
    except (KafkaError, TypeError, AssertionError) as error:
        raise CannotReplay(f"{context}: {error}") from error


def _record_of(record: Any) -> Record:
    """Convert a consumed record. Headers with a null value are kept: other producers may have written such records."""
    headers = tuple((name, value) for name, value in record.headers)
    return Record(record.key, record.value, record.timestamp, headers)
