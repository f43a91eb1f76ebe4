"""The event store of bridges over an Apache Kafka: SIGKILL of the bridge and of brokers, and takeovers, under load.

No event that was acknowledged is lost, none is stored twice, every batch is there as a whole or not at all, and neither
numbers nor positions have gaps.
"""

import asyncio
import json
import random
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.end_to_end.seeds import announced_seed
from tests.support.apache_cluster import NODE_IDS, ApacheCluster, on_apache
from tests.support.bridge_process import BridgeProcess
from tests.support.engines import delete_all_topics
from tests.support.event_ledger import (
    Found,
    Ledger,
    NumberReader,
    PositionReader,
    answered_count,
    make_topics,
    published,
)
from tests.support.event_senders import EVENT_TYPE, Publisher
from tests.support.http_json import ask
from tests.support.server import HOST, wait_until

TOPICS = ("orders", "users", "audit", "stock")
PUBLISHERS = 6
KILLS = 5
TAKEOVERS = 4
TIMEOUT_S = 60.0
NUMBER_HEADER = "ce_kwirenumber"

StartBridge = Callable[..., BridgeProcess]


@pytest.fixture
def start_bridge(tmp_path: Path, apache_kafka: ApacheCluster) -> Iterator[StartBridge]:
    started: list[BridgeProcess] = []

    def start(name: str) -> BridgeProcess:
        bridge = BridgeProcess(tmp_path / name, apache_kafka.bootstrap)
        started.append(bridge)
        bridge.start()
        bridge.ready()
        return bridge

    yield start
    for bridge in started:
        bridge.kill()
    asyncio.run(delete_all_topics(apache_kafka.bootstrap))


class Load:
    """Publishers, and what readers that resume have found after each disturbance."""

    def __init__(self, bridge: BridgeProcess, seed: int) -> None:
        self.publishers = [Publisher(number, address_of(bridge), TOPICS, seed) for number in range(PUBLISHERS)]
        self.ledger = Ledger(self.publishers)
        self.event_count = 0
        self._positions = PositionReader()
        self._numbers = NumberReader(TOPICS)
        for one in self.publishers:
            one.start()

    def go(self) -> None:
        for one in self.publishers:
            one.may_go.set()

    def wait_for(self, more: int) -> None:
        """Until this number of batches was answered."""
        target = answered_count(self.publishers) + more
        wait_until(lambda: answered_count(self.publishers) >= target, "batches are answered", TIMEOUT_S)

    def rest(self) -> None:
        for one in self.publishers:
            one.rest()

    def move(self, bridge: BridgeProcess) -> None:
        for one in self.publishers:
            one.move(address_of(bridge))

    def check(self, bridge: BridgeProcess) -> None:
        """All events since the last check, in both orders. Publishers rest."""
        in_topics = published(self._numbers.read_on(bridge.http_url))
        assert in_topics == published(self._positions.read_on(bridge.http_url))
        self.ledger.add(in_topics)
        self.ledger.check()
        self.event_count += len(in_topics)

    def end(self, bridge: BridgeProcess, bootstrap: str) -> None:
        """All that was ever stored, as the bridge and as a Kafka client reads it."""
        for one in self.publishers:
            one.end()
        everything = published(NumberReader(TOPICS).read_on(bridge.http_url))
        assert everything == published(PositionReader().read_on(bridge.http_url))
        assert len(everything) == self.event_count
        assert everything == published(read_committed(bootstrap))
        absent_count = sum(len(one.asked) for one in self.publishers) - len(self.ledger.found)
        print(
            f"{answered_count(self.publishers)} batches answered, {len(self.ledger.found)} stored with "
            f"{self.event_count} events, {absent_count} absent; 0 lost, 0 in part, 0 twice"
        )


def address_of(bridge: BridgeProcess) -> tuple[str, int]:
    assert bridge.http_port is not None
    return HOST, bridge.http_port


def read_committed(bootstrap: str) -> Found:
    """The events of all topics with the numbers in their headers, which have no gaps."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: Found = []
    try:
        for name in TOPICS:
            consumer.assign([TopicPartition(name, 0, 0)])
            number = 0
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, f"{name}: nothing comes"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                assert int(dict(message.headers() or ())[NUMBER_HEADER]) == number
                number += 1
                found.append((f"{name}-{number}", json.loads(message.value() or b"")))
    finally:
        consumer.close()
    return found


@on_apache
@pytest.mark.timeout(300)
def test_the_kill_of_a_bridge_loses_and_repeats_no_event(
    apache_kafka: ApacheCluster, start_bridge: StartBridge
) -> None:
    seed = announced_seed()
    chance = random.Random(seed)
    bridge = start_bridge("bridge")
    make_topics(bridge, TOPICS)
    load = Load(bridge, seed)
    restarts_s: list[float] = []
    for _ in range(KILLS):
        load.go()
        load.wait_for(chance.randint(1, 80))
        threading.Event().wait(chance.uniform(0.0, 0.1))  # not a wait for anything: the moment of the kill
        assert bridge.is_running, "the bridge ended by itself"
        bridge.kill()
        load.rest()
        restarts_s.append(bridge.restart())
        load.check(bridge)
    print(f"{KILLS} kills; starts in {max(restarts_s):.2f} s at most")
    load.end(bridge, apache_kafka.bootstrap)
    assert bridge.stop() == 0


@on_apache
@pytest.mark.timeout(400)
def test_the_kill_of_brokers_loses_and_repeats_no_event(apache_kafka: ApacheCluster, start_bridge: StartBridge) -> None:
    bridge = start_bridge("bridge")
    make_topics(bridge, TOPICS)
    load = Load(bridge, announced_seed())
    for node_id in NODE_IDS:
        load.go()
        load.wait_for(10)
        apache_kafka.kill(node_id)
        try:
            load.wait_for(20)
        finally:
            apache_kafka.restart(node_id)
        load.wait_for(20)
        load.rest()
        load.check(bridge)
    load.end(bridge, apache_kafka.bootstrap)
    assert bridge.stop() == 0


@on_apache
@pytest.mark.timeout(300)
def test_a_bridge_takes_the_event_store_over_under_load(
    apache_kafka: ApacheCluster, start_bridge: StartBridge, tmp_path: Path
) -> None:
    seed = announced_seed()
    chance = random.Random(seed)
    first = start_bridge("first")
    make_topics(first, TOPICS)
    shutil.copytree(first.data_dir, tmp_path / "second" / first.data_dir.name)
    load = Load(first, seed)
    bridges = [first, BridgeProcess(tmp_path / "second", apache_kafka.bootstrap)]
    assert bridges[1].data_dir == tmp_path / "second" / first.data_dir.name
    try:
        for _ in range(TAKEOVERS):
            serving, standby = bridges
            load.go()
            load.wait_for(chance.randint(1, 60))
            standby.restart()
            wait_until(partial(is_fenced, serving), "the first bridge refuses events", TIMEOUT_S)
            load.rest()
            load.check(standby)
            load.move(standby)
            check_is_fenced(serving)
            assert serving.stop() == 0
            bridges = [standby, serving]
        load.go()
        load.wait_for(20)
        load.rest()
        load.check(bridges[0])
        load.end(bridges[0], apache_kafka.bootstrap)
    finally:
        for one in bridges:
            one.kill()


def is_fenced(bridge: BridgeProcess) -> bool:
    answer = publish_one(bridge)
    assert answer[0] in (201, 503), answer
    return answer == (503, "EventStoreUnavailable")


def publish_one(bridge: BridgeProcess) -> tuple[int, str]:
    answer = ask(f"{bridge.http_url}/events", "POST", {"topic": TOPICS[0], "type": EVENT_TYPE, "payload": {"other": 1}})
    return answer.status, answer.body["error"]["code"] if answer.status >= 400 else ""


def check_is_fenced(bridge: BridgeProcess) -> None:
    """Everything of the event store is refused, and logs and metrics say so."""
    assert publish_one(bridge) == (503, "EventStoreUnavailable")
    paths: Sequence[str] = (f"/topics/{TOPICS[0]}/events", f"/events/{TOPICS[0]}-1", "/subscribe/all?from=0")
    for path in paths:
        answer = ask(f"{bridge.http_url}{path}")
        assert (answer.status, answer.body["error"]["code"]) == (503, "EventStoreUnavailable")
        assert "another process has taken over" in answer.body["error"]["message"]
    with urllib.request.urlopen(f"{bridge.http_url}/metrics", timeout=TIMEOUT_S) as metrics:
        assert b"kwire_bridge_event_store_open 0.0" in metrics.read()
    assert "the event store is not served: another process has taken over" in bridge.output_tail()
    overview = ask(f"{bridge.http_url}/overview").body
    assert any("The event store is not served" in one for one in overview["warnings"])
