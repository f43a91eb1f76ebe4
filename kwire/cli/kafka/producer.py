"""Writes records to one topic: collects them in batches, keeps several requests in flight, and repeats failed ones.

An idempotent producer numbers the batches of each partition, so that the server stores a repeated batch once and keeps
the order. After an error all requests in flight are awaited, and everything that was not stored is sent again in order.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kwire.cli.connection.errors import Refused
from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.batch_encoding import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES_MAX,
    VALUE_OVERHEAD_BYTES_MAX,
    build,
    encode_bodies,
    encode_values,
)
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.partitioning import Partitioner
from kwire.cli.kafka.retries import Retries
from kwire.errors import ErrorCode
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from kwire.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.batch.builder import encode_record_body, header_bytes
from storage.batch.format import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NONE

# The server detects repeated batches of up to five requests in flight.
REQUESTS_IN_FLIGHT_MAX = 5
BATCH_BYTES_DEFAULT = 256 * 1024
BATCH_BYTES_MIN = 1024
# Bound of the records that wait for their batches to become full, of all partitions together.
PENDING_BYTES_MAX = 32 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
# How long a batch is sent again and again before the command fails.
DELIVERY_TIMEOUT_SECONDS = 60.0
ACKS_ALL = -1
UNKNOWN_OFFSET = -1
_SEQUENCES = 1 << 31

Headers = Sequence[tuple[bytes, bytes | None]]


class ProducerSettings(NamedTuple):
    acks: int = ACKS_ALL
    is_idempotent: bool = True
    codec: int = NONE
    batch_bytes: int = BATCH_BYTES_DEFAULT


@dataclass
class Written:
    """What the server has acknowledged for one partition. The offsets are unknown (-1) with acks=0."""

    records: int = 0
    first_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET


class _Batch(NamedTuple):
    """A batch that is ready to be sent, as often as necessary. `number` is its position among all batches."""

    number: int
    partition: int
    data: bytes
    records: int


@dataclass
class _Pending:
    """Records of one partition that are not in a batch yet: values only, or encoded bodies with timestamps."""

    values: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES

    @property
    def count(self) -> int:
        return len(self.values) or len(self.bodies)


class Producer:
    """Writes records to a topic. `flush` sends everything and waits until it is acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008 (a tuple)
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.topic = topic
        self.written: dict[int, Written] = {}
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._partitions = frozenset(cluster.partitions(topic))
        self._partitioner = Partitioner(sorted(self._partitions))
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._in_flight: dict[int, deque[list[_Batch]]] = {}
        self._failed: list[_Batch] = []
        self._batch_count = 0
        self._sequences: dict[int, int] = {}
        self._producer_id, self._producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if settings.is_idempotent:
            self._producer_id, self._producer_epoch = self._init_producer_id()

    @property
    def written_count(self) -> int:
        return sum(one.records for one in self.written.values())

    # Adding

    def add_values(self, values: list[bytes], partition: int | None = None) -> None:
        """Add records that are only a value, with the time of their batch. This is the fast way."""
        while values:
            chosen = self._partitioner.sticky if partition is None else partition
            pending = self._pending_of(chosen)
            room = self._settings.batch_bytes - pending.size_bytes
            size = _values_bytes(values)
            if size <= room:
                self._append_values(pending, values, size)
                return
            count = int(len(values) * max(0, room) / size)
            while count and _values_bytes(values[:count]) > room:
                count = count * 3 // 4
            if not count and not pending.count:
                # A value that is larger than a batch gets a batch of its own.
                count = 1
            if count:
                self._append_values(pending, values[:count], _values_bytes(values[:count]))
            self._send([self._seal(chosen)])
            values = values[count:]

    def _append_values(self, pending: _Pending, values: list[bytes], size: int) -> None:
        if pending.bodies:
            now_ms = self._now_ms()
            pending.bodies += [encode_record_body(None, value, 0, b"") for value in values]
            pending.timestamps_ms += [now_ms] * len(values)
        else:
            pending.values += values
        pending.size_bytes += size
        self._pending_bytes += size

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one record. Without a partition, the key chooses it. Without a timestamp, the record gets the time."""
        encoded = b"".join([header_bytes(name, content) for name, content in headers]) if headers else b""
        body = encode_record_body(key, value, len(headers), encoded)
        size = len(body) + RECORD_OVERHEAD_BYTES_MAX
        if partition is None:
            partition = self._partitioner.sticky if key is None else self._partitioner.for_key(key)
        pending = self._pending_of(partition)
        if pending.count and pending.size_bytes + size > self._settings.batch_bytes:
            self._send([self._seal(partition)])
            pending = self._pending_of(partition)
        if pending.values:
            now_ms = self._now_ms()
            pending.bodies = [encode_record_body(None, one, 0, b"") for one in pending.values]
            pending.timestamps_ms = [now_ms] * len(pending.values)
            pending.values = []
        pending.bodies.append(body)
        pending.timestamps_ms.append(self._now_ms() if timestamp_ms is None else timestamp_ms)
        pending.size_bytes += size
        self._pending_bytes += size
        if self._pending_bytes > PENDING_BYTES_MAX:
            self.send_pending()

    def send_pending(self) -> None:
        """Send the records that wait for their batch to become full. Does not wait for the acknowledgements."""
        batches = [self._seal(partition) for partition in list(self._pending)]
        if batches:
            self._send(batches)

    def flush(self) -> None:
        """Send everything, and wait until it is acknowledged. Raises if something was not stored."""
        self.send_pending()
        self._collect_all()
        self._repeat_failed()

    def _pending_of(self, partition: int) -> _Pending:
        pending = self._pending.get(partition)
        if pending is None:
            if partition not in self._partitions:
                self._cluster.check_partition(self.topic, partition)
            pending = self._pending[partition] = _Pending()
        return pending

    def _seal(self, partition: int) -> _Batch:
        pending = self._pending.pop(partition)
        self._pending_bytes -= pending.size_bytes - BATCH_OVERHEAD_BYTES
        if partition == self._partitioner.sticky:
            self._partitioner.next_sticky()
        count = pending.count
        if pending.values:
            records = encode_values(pending.values)
            base_ms = max_ms = self._now_ms()
        else:
            records = encode_bodies(pending.bodies, pending.timestamps_ms)
            base_ms, max_ms = pending.timestamps_ms[0], max(pending.timestamps_ms)
        sequence = NO_SEQUENCE
        if self._settings.is_idempotent:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (sequence + count) % _SEQUENCES
        data = build(
            records,
            count,
            base_ms,
            max_ms,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            codec=self._settings.codec,
        )
        self._batch_count += 1
        return _Batch(self._batch_count, partition, data, count)

    # Sending

    def _send(self, batches: Sequence[_Batch]) -> None:
        """Send batches to the leaders of their partitions, after those that failed before them."""
        if self._failed:
            self._repeat_failed()
        self._send_once(batches)
        if self._failed:
            self._repeat_failed()

    def _send_once(self, batches: Sequence[_Batch]) -> None:
        by_partition = {TopicPartition(self.topic, batch.partition): batch for batch in batches}
        assert len(by_partition) == len(batches), "one request has at most one batch of a partition"
        for node, partitions in self._cluster.by_leader(by_partition).items():
            self._send_to(node, [by_partition[partition] for partition in partitions])

    def _send_to(self, node: int, batches: list[_Batch]) -> None:
        flight = self._in_flight.setdefault(node, deque())
        while len(flight) >= REQUESTS_IN_FLIGHT_MAX:
            self._collect(node)
        if self._failed:
            # A batch of the same partition may be among them. Everything is sent again in order.
            self._failed += batches
            return
        acks = self._settings.acks
        data = [PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        flight.append(batches)
        try:
            self._cluster.channel(node).send(PRODUCE, request, has_response=acks != 0)
        except ConnectionError:
            self._lose(node)
            return
        if acks == 0:
            flight.pop()
            for batch in batches:
                self._note(batch, UNKNOWN_OFFSET)

    def _collect(self, node: int) -> None:
        """Receive one response of a broker. Batches that it has not stored go to `_failed`."""
        flight = self._in_flight[node]
        try:
            response = self._cluster.channel(node).receive()
        except ConnectionError:
            self._lose(node)
            return
        batches = {batch.partition: batch for batch in flight.popleft()}
        for topic in response.responses:
            for one in topic.partition_responses:
                self._settle(batches.pop(one.index), one)
        if batches:
            raise Refused(f"the server did not answer for partition {min(batches)} of {self.topic}")

    def _settle(self, batch: _Batch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if not code:
            self._note(batch, answer.base_offset)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # An earlier attempt has stored it.
            self._note(batch, UNKNOWN_OFFSET)
        elif is_retriable(code) or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._has_failed_before(batch)):
            self._failed.append(batch)
        else:
            what = f"partition {self.topic}-{batch.partition}"
            raise ServerError(what, code, answer.error_message)

    def _has_failed_before(self, batch: _Batch) -> bool:
        return any(one.partition == batch.partition and one.number < batch.number for one in self._failed)

    def _lose(self, node: int) -> None:
        """The connection to a broker is lost: nothing in flight to it is known to be stored."""
        for batches in self._in_flight[node]:
            self._failed += batches
        self._in_flight[node].clear()
        self._cluster.drop(node)

    def _collect_all(self) -> None:
        for node, flight in self._in_flight.items():
            while flight:
                self._collect(node)

    def _repeat_failed(self) -> None:
        retries = Retries(DELIVERY_TIMEOUT_SECONDS)
        while True:
            self._collect_all()
            if not self._failed:
                return
            batches = sorted(self._failed)
            if not retries.pause():
                raise Refused(
                    f"topic {self.topic}: {sum(batch.records for batch in batches)} records were not acknowledged "
                    f"within {DELIVERY_TIMEOUT_SECONDS:.0f} s"
                )
            try:
                self._cluster.reload()
            except ConnectionError:
                continue
            self._failed = []
            # One round has one batch of each partition at most, and the next round begins when it is answered.
            while batches:
                first: dict[int, _Batch] = {}
                for batch in batches:
                    first.setdefault(batch.partition, batch)
                batches = [one for one in batches if one is not first[one.partition]]
                self._send_once(list(first.values()))
                self._collect_all()
                if self._failed:
                    self._failed += batches
                    break

    def _note(self, batch: _Batch, base_offset: int) -> None:
        written = self.written.setdefault(batch.partition, Written())
        written.records += batch.records
        if base_offset != UNKNOWN_OFFSET:
            if written.first_offset == UNKNOWN_OFFSET:
                written.first_offset = base_offset
            written.last_offset = base_offset + batch.records - 1

    def _init_producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        retries = Retries(REQUEST_TIMEOUT_MS / 1000)
        while True:
            response = self._cluster.ask_any(INIT_PRODUCER_ID, request)
            code = response.error_code
            if not code:
                return response.producer_id, response.producer_epoch
            if not is_retriable(code) or not retries.pause():
                raise ServerError("an idempotent producer (--no-idempotence does without)", code)


def _values_bytes(values: list[bytes]) -> int:
    return sum(map(len, values)) + len(values) * VALUE_OVERHEAD_BYTES_MAX
