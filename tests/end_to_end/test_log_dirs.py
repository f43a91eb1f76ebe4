"""Partitions of a real server move between its data directories, under stock clients that notice nothing, and kills."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaAdminClient
from kafka.errors import LogDirNotFoundError, NoError

from tests.end_to_end.seeds import announced_seed
from tests.support.clients import Topics
from tests.support.effort import repetitions
from tests.support.sent_ledger import SentLedger
from tests.support.server import KwireProcess, wait_until

StartKwire = Callable[..., KwireProcess]

PARTITIONS = 3
MOVES = repetitions(quick=3, full=6)
KILLS = repetitions(quick=3, full=6)
WAIT_SECONDS = 60.0
VALUE_BYTES = 500
NODE_ID = 1


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("first", "second")]


@pytest.fixture
def process(start_kwire: StartKwire, dirs: list[str]) -> KwireProcess:
    return start_kwire(names_data_dir=False, settings={"log.dirs": ",".join(dirs)})


@contextmanager
def administrating(process: KwireProcess) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def places(admin: Any, topic: str) -> dict[int, list[tuple[str, bool]]]:
    """For each partition the directories it is in, and whether it is a future one there."""
    found: dict[int, list[tuple[str, bool]]] = {}
    (answer,) = admin.describe_log_dirs()
    for directory in answer["log_dirs"]:
        assert directory["error_code"] == 0
        assert directory["total_bytes"] >= directory["usable_bytes"] > 0
        for one in directory["topics"]:
            if one["name"] == topic:
                for partition in one["partitions"]:
                    place = (directory["log_dir"], partition["is_future_key"])
                    found.setdefault(partition["partition_index"], []).append(place)
    return found


def move_all(process: KwireProcess, topic: str, data_dir: str) -> None:
    wanted = {(topic, partition, NODE_ID): data_dir for partition in range(PARTITIONS)}
    with administrating(process) as admin:
        assert set(admin.alter_replica_log_dirs(wanted).values()) == {NoError}


def has_arrived(admin: Any, topic: str, data_dir: str) -> bool:
    return places(admin, topic) == {partition: [(data_dir, False)] for partition in range(PARTITIONS)}


def wait_until_arrived(process: KwireProcess, topic: str, data_dir: str) -> None:
    with administrating(process) as admin:
        wait_until(lambda: has_arrived(admin, topic, data_dir), "the partitions arrive", WAIT_SECONDS)


class Feeder:
    """Produces to all partitions, as fast as it is acknowledged, until it is told to stop."""

    def __init__(self, process: KwireProcess, topic: str, **options: Any) -> None:
        self.ledger = SentLedger(PARTITIONS)
        self._topic = topic
        self._done = threading.Event()
        common = {"bootstrap.servers": process.bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0}
        self._producer = Producer({**common, **options})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.fail(error)
            return
        partition, value, offset = message.partition(), message.value(), message.offset()
        assert partition is not None
        assert isinstance(value, bytes)
        assert offset is not None
        self.ledger.acknowledge(partition, value, offset)

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                if self.ledger.has_room():
                    for partition in range(PARTITIONS):
                        value = self.ledger.next_value(partition, VALUE_BYTES)
                        self._producer.produce(
                            self._topic, value=value, partition=partition, on_delivery=self._delivered
                        )
                self._producer.poll(0.0005)
        except Exception as error:
            self.ledger.fail(repr(error))

    def await_more(self, count: int) -> None:
        target = self.ledger.acknowledged_count + count
        wait_until(lambda: self.ledger.acknowledged_count >= target, "records are acknowledged", WAIT_SECONDS)

    def stop(self) -> None:
        self._done.set()
        self._thread.join(WAIT_SECONDS)
        assert self._producer.flush(WAIT_SECONDS) == 0


def new_topic(process: KwireProcess) -> str:
    topics = Topics(process.bootstrap)
    try:
        configs = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"}
        return topics.create("moved", partitions=PARTITIONS, configs=configs)
    finally:
        topics.close()


def test_clients_notice_nothing_of_partitions_that_move(process: KwireProcess, dirs: list[str]) -> None:
    topic = new_topic(process)
    # Nothing is tried again: every error would be told.
    feeder = Feeder(process, topic, **{"retries": 0, "enable.idempotence": False})
    try:
        for number in range(MOVES):
            feeder.await_more(500)
            target = dirs[number % 2]
            move_all(process, topic, target)
            wait_until_arrived(process, topic, target)
    finally:
        feeder.stop()
    feeder.ledger.check_complete(process.bootstrap, topic)
    assert process.stop() == 0
    process.restart()
    with administrating(process) as admin:
        assert has_arrived(admin, topic, target)
    feeder.ledger.check_complete(process.bootstrap, topic)


@pytest.mark.timeout(180 + 10 * KILLS)
def test_no_acknowledged_record_is_lost_when_a_server_dies_while_partitions_move(
    process: KwireProcess, dirs: list[str]
) -> None:
    chance = random.Random(announced_seed())
    topic = new_topic(process)
    feeder = Feeder(
        process,
        topic,
        **{
            "enable.idempotence": True,
            "message.timeout.ms": 300_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        },
    )
    try:
        for number in range(KILLS):
            feeder.await_more(chance.randint(100, 2000))
            target = dirs[number % 2]
            move_all(process, topic, target)
            threading.Event().wait(chance.uniform(0.0, 0.1))
            process.kill()
            process.restart()
            # What the kill interrupted goes on by itself.
            wait_until_arrived(process, topic, target)
    finally:
        feeder.stop()
    feeder.ledger.check_complete(process.bootstrap, topic)


def test_a_directory_that_is_not_configured_is_refused(process: KwireProcess, tmp_path: Path) -> None:
    topic = new_topic(process)
    with administrating(process) as admin:
        (error,) = admin.alter_replica_log_dirs({(topic, 0, NODE_ID): str(tmp_path / "elsewhere")}).values()
    assert error is LogDirNotFoundError
