"""Fetch sessions with a stock client: kafka-python opens one per node, as Java's consumer does."""

import urllib.request
from collections.abc import Callable
from functools import partial

from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.consumer import FetchRequest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients import DEADLINE_S, POLL_MS, Topics, produce_values
from tests.support.clients_raw import RawConnection
from tests.support.server import KwireProcess, wait_until

HTTP_TIMEOUT_S = 30.0


def metric(process: KwireProcess, name: str) -> float:
    with urllib.request.urlopen(f"{process.http_url}/metrics", timeout=HTTP_TIMEOUT_S) as response:
        families = text_string_to_metric_families(response.read().decode())
    return next(sample.value for family in families for sample in family.samples if sample.name == name)


def end_session(process: KwireProcess, session_id: int) -> None:
    """Close a session from another connection, as a restart would."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=session_id,
        session_epoch=-1,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
    )
    with RawConnection(process.kafka_address) as connection:
        assert connection.call(request, 12).error_code == 0


class Reading:
    """A consumer of some topics and the values it has seen."""

    def __init__(self, process: KwireProcess, names: list[str]) -> None:
        # A change of the session goes with the next fetch, which comes when the one under way was answered.
        self.consumer = KafkaConsumer(
            bootstrap_servers=process.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )
        self.seen: dict[str, list[bytes]] = {}
        self.assign(names)

    @property
    def session_id(self) -> int:
        (handler,) = self.consumer._fetcher._session_handlers.values()
        session_id: int = handler.next_metadata.session_id
        return session_id

    def assign(self, names: list[str]) -> None:
        self.consumer.assign([TopicPartition(name, 0) for name in names])

    def has_seen(self, name: str, values: list[bytes]) -> bool:
        for partition, records in self.consumer.poll(timeout_ms=POLL_MS).items():
            self.seen.setdefault(partition.topic, []).extend(record.value for record in records)
        assert self.seen.get(name, []) == values[: len(self.seen.get(name, []))]
        return len(self.seen.get(name, [])) == len(values)


def test_consumer_misses_nothing_while_its_session_grows_shrinks_and_is_lost(
    start_kwire: Callable[..., KwireProcess],
) -> None:
    process = start_kwire(settings={"max.incremental.fetch.session.cache.slots": "1"})
    maker = Topics(process.bootstrap)
    names = [maker.create(f"session-{number}") for number in range(4)]
    sent: dict[str, list[bytes]] = {name: [] for name in names}

    def send(*to: str) -> None:
        for name in to:
            values = [f"{name} {len(sent[name]) + number}".encode() for number in range(10)]
            produce_values(process.bootstrap, name, values)
            sent[name] += values

    def read(*of: str) -> None:
        for name in of:
            wait_until(partial(reading.has_seen, name, sent[name]), f"all of {name}")

    reading = Reading(process, names[:3])
    try:
        send(*names)
        read(*names[:3])
        # One at a time, so that most of the session is idle.
        for name in (names[2], names[0], names[2]):
            send(name)
            read(name)
        assert metric(process, "kwire_broker_fetch_sessions") == 1
        assert metric(process, "kwire_broker_fetch_session_partitions") == 3
        reading.assign([names[0], names[3]])
        read(names[3])
        send(names[0], names[3])
        read(names[0], names[3])
        assert metric(process, "kwire_broker_fetch_session_partitions") == 2
        assert metric(process, "kwire_broker_fetch_session_evictions_total") == 0
        # The server forgets the session: the consumer learns of it from its next fetch, and begins a new one.
        lost = reading.session_id
        end_session(process, lost)
        send(names[0])
        read(names[0])
        send(names[3])
        read(names[3])
        assert metric(process, "kwire_broker_fetch_session_partitions") == 2
        assert reading.session_id not in (0, lost)
    finally:
        reading.consumer.close(autocommit=False, timeout_ms=int(DEADLINE_S * 1000))
        maker.close()
