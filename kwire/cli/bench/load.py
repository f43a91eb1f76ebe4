"""The parts of a benchmark: write, read, and one record after another from end to end."""

import random
import time
from typing import NamedTuple

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.fetcher import Fetcher
from kwire.cli.kafka.positions import Bounds
from kwire.cli.kafka.producer import Producer, ProducerSettings

# The values are made once, so that making them takes no time while the load runs.
VALUES_BYTES = 4 * 1024 * 1024
RECORDS_PER_STEP_MAX = 5000
STEP_BYTES = 256 * 1024
POLL_SECONDS = 0.5
_PRINTABLE = bytes(range(0x20, 0x7F)) * 3


class Load(NamedTuple):
    """How much to do at most in each part."""

    records: int
    seconds: float
    record_bytes: int


class Rate(NamedTuple):
    """How much was done in which time. Megabytes are of values, 10^6 bytes."""

    records: int
    seconds: float
    records_per_s: float
    mb_per_s: float


class Percentiles(NamedTuple):
    """Latencies in milliseconds."""

    records: int
    p50: float
    p95: float
    p99: float
    p999: float
    max: float


def produce(cluster: Cluster, topic: str, load: Load, settings: ProducerSettings) -> Rate:
    """Write records without keys, as fast as the server confirms them."""
    producer = Producer(cluster, topic, settings)
    values = _values(load)
    step = max(1, min(RECORDS_PER_STEP_MAX, STEP_BYTES // load.record_bytes, len(values)))
    added = 0
    began = time.perf_counter()
    while added < load.records and time.perf_counter() - began < load.seconds:
        first = added % len(values)
        some = values[first : first + min(step, load.records - added)]
        producer.add_values(some)
        added += len(some)
    producer.flush()
    return _rate(producer.written_count, load, time.perf_counter() - began)


def consume(cluster: Cluster, topic: str, load: Load) -> Rate:
    """Read the records from the beginning to the end, and decode their values."""
    bounds = _bounds(cluster, topic)
    fetcher = Fetcher(cluster)
    fetcher.assign(bounds.first, bounds.end)
    read = 0
    began = time.perf_counter()
    try:
        while not fetcher.is_done and time.perf_counter() - began < load.seconds:
            for batch in fetcher.poll(POLL_SECONDS):
                read += len(batch.values())
        return _rate(read, load, time.perf_counter() - began)
    finally:
        fetcher.close()


def end_to_end(cluster: Cluster, topic: str, count: int, load: Load, settings: ProducerSettings) -> Percentiles:
    """Write one record after another, and measure each time from sending it until a waiting consumer has it."""
    partition = TopicPartition(topic, 0)
    producer = Producer(cluster, topic, settings)
    fetcher = Fetcher(cluster)
    fetcher.assign({partition: _bounds(cluster, topic).end[partition]})
    value = _values(load)[0]
    times_ms: list[float] = []
    began = time.perf_counter()
    try:
        # The first request of the consumer waits at the server before the first record is sent.
        list(fetcher.poll(0))
        while len(times_ms) < count and time.perf_counter() - began < load.seconds:
            sent = time.perf_counter()
            producer.add_values([value], partition.partition)
            producer.send_pending()
            while not sum(batch.record_count for batch in fetcher.poll(POLL_SECONDS)):
                if time.perf_counter() - sent > load.seconds:
                    raise TimeoutError(f"a record of {topic} did not arrive within {load.seconds:.0f} s")
            times_ms.append((time.perf_counter() - sent) * 1000)
            producer.flush()
    finally:
        fetcher.close()
    return percentiles(times_ms)


def percentiles(times_ms: list[float]) -> Percentiles:
    """Return the percentiles of at least one time, each one of the times."""
    ordered = sorted(times_ms)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Percentiles(len(ordered), at(0.5), at(0.95), at(0.99), at(0.999), ordered[-1])


def _bounds(cluster: Cluster, topic: str) -> Bounds:
    partitions = [TopicPartition(topic, one) for one in cluster.partitions(topic)]
    return Bounds.of(cluster, partitions, is_committed=False)


def _values(load: Load) -> list[bytes]:
    """Return values of printable characters. Repeatable: the same load has the same values."""
    rng = random.Random(load.record_bytes)
    count = max(1, min(load.records, VALUES_BYTES // load.record_bytes))
    text = bytes(rng.choices(_PRINTABLE, k=64 * 1024 + load.record_bytes))
    starts = [rng.randrange(64 * 1024) for _ in range(count)]
    return [text[start : start + load.record_bytes] for start in starts]


def _rate(records: int, load: Load, seconds: float) -> Rate:
    return Rate(records, seconds, records / seconds, records * load.record_bytes / seconds / 1e6)
