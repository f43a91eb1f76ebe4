"""The Kafka client of the command line when servers end and come back, and in groups with other clients."""

import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from kwire.cli.connection.errors import Unreachable
from kwire.cli.kafka import fetcher, producer
from kwire.cli.kafka.consumer import Consumer, ConsumerSettings
from kwire.cli.kafka.group_member import GroupMember
from kwire.cli.kafka.positions import BEGIN, END
from kwire.cli.kafka.producer import Producer, ProducerSettings
from tests.support.cli_data import cluster
from tests.support.clients import Topics, produce_values, read_topic, unique_name
from tests.support.server import Broker, KwireProcess, wait_until

TIMEOUT_S = 60.0


def created(process: KwireProcess, stem: str, partitions: int) -> str:
    topics = Topics(process.bootstrap)
    try:
        return topics.create(stem, partitions)
    finally:
        topics.close()


def test_a_producer_goes_on_after_its_server_was_killed(killable: KwireProcess) -> None:
    """Everything is stored once and in order, though many batches were in flight when the server died."""
    topic = created(killable, "cli-kill", 2)
    count = 60_000
    begun, killed = threading.Event(), threading.Event()

    def kill() -> None:
        assert begun.wait(TIMEOUT_S)
        killable.kill()
        killed.set()
        killable.restart()

    killer = threading.Thread(target=kill)
    killer.start()
    with cluster(killable.bootstrap) as servers:
        servers.load_topics([topic])
        writer = Producer(servers, topic, ProducerSettings(batch_bytes=4096))
        for number in range(count):
            if number == count // 3:
                begun.set()
            if number == count - 100:
                # The rest is sent to the new server, if not much more.
                assert killed.wait(TIMEOUT_S)
            writer.add(None, b"%d" % number, partition=number % 2)
        writer.flush()
    killer.join()
    assert writer.written_count == count
    found = read_topic(killable.bootstrap, topic)
    for index in range(2):
        assert [int(record.value) for record in found[index]] == list(range(index, count, 2))


def test_a_consumer_goes_on_after_its_server_was_killed(killable: KwireProcess) -> None:
    topic = created(killable, "cli-read", 1)
    produce_values(killable.bootstrap, topic, [b"0", b"1"])
    values: list[bytes | None] = []
    with cluster(killable.bootstrap) as servers:
        servers.load_topics([topic])
        reader = Consumer(servers, [topic], ConsumerSettings(BEGIN, record_max=4))
        with closing(reader.rounds()) as rounds:
            for batches in rounds:
                for batch in batches:
                    values += batch.values()
                if len(values) == 2:
                    killable.kill()
                    killable.restart()
                    produce_values(killable.bootstrap, topic, [b"2", b"3"])
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_server_that_stays_away_ends_the_command(
    start_kwire: Callable[..., KwireProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "DELIVERY_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(fetcher, "RECOVERY_TIMEOUT_SECONDS", 0.5)
    process = start_kwire()
    topic = created(process, "cli-gone", 1)
    with cluster(process.bootstrap) as servers:
        servers.load_topics([topic])
        writer = Producer(servers, topic)
        writer.add_values([b"a"])
        writer.flush()
        reader = Consumer(servers, [topic], ConsumerSettings(BEGIN))
        rounds = reader.rounds()
        assert [batch.values() for batch in next(rounds)] == [[b"a"]]
        process.kill()
        writer.add_values([b"b"])
        with pytest.raises(ValueError, match="1 record"):
            writer.flush()
        with pytest.raises(Unreachable, match=process.bootstrap):
            next(rounds)
    assert writer.written_count == 1


def test_a_group_is_shared_with_another_client(broker: Broker, topics: Topics) -> None:
    """confluent-kafka and the command line divide the partitions, and each record is read by one of them."""
    topic, group = topics.create("cli-shared", partitions=4), unique_name("cli-shared")
    other = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6000,
        }
    )
    other.subscribe([topic])
    ended = threading.Event()
    theirs: list[bytes] = []
    # How many partitions the other client has. Only the thread that polls may ask it.
    sizes = [0]

    def poll() -> None:
        while not ended.is_set():
            message = other.poll(0.05)
            sizes[0] = len(other.assignment())
            if message is not None and not message.error():
                theirs.append(message.value())

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        wait_until(lambda: sizes[0] == 4, "the other client has all partitions")
        with cluster(broker.bootstrap) as servers:
            servers.load_topics([topic])
            member = GroupMember(servers, group, [topic])
            try:
                assert len(member.join()) == 2
                wait_until(lambda: sizes[0] == 2, "the other client has two partitions")
            finally:
                member.leave()
            wait_until(lambda: sizes[0] == 4, "the other client has all partitions again")
            for index in range(4):
                produce_values(broker.bootstrap, topic, [b"a%d" % index], partition=index)
            wait_until(lambda: len(theirs) == 4, "the other client has read everything")
    finally:
        ended.set()
        thread.join()
        other.close()
    for index in range(4):
        produce_values(broker.bootstrap, topic, [b"b%d" % index], partition=index)
    with cluster(broker.bootstrap) as servers:
        servers.load_topics([topic])
        reader = Consumer(servers, [topic], ConsumerSettings(BEGIN, END, group_id=group))
        with closing(reader.rounds()) as rounds:
            ours = [value for batches in rounds for batch in batches for value in batch.values()]
    assert sorted(theirs) == [b"a0", b"a1", b"a2", b"a3"]
    assert sorted(value for value in ours if value) == [b"b0", b"b1", b"b2", b"b3"]


def test_members_of_a_group_rebalance_when_one_comes_and_goes(
    broker: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.cli.kafka.group_member.HEARTBEAT_SECONDS", 0.05)
    topic, group = topics.create("cli-rebalance", partitions=3), unique_name("cli-rebalance")
    with cluster(broker.bootstrap) as servers, cluster(broker.bootstrap) as others:
        servers.load_topics([topic])
        others.load_topics([topic])
        first, second = GroupMember(servers, group, [topic]), GroupMember(others, group, [topic])
        try:
            assert len(first.join()) == 3
            joined: list[int] = []
            thread = threading.Thread(target=lambda: joined.append(len(second.join())))
            thread.start()
            wait_until(lambda: first.must_rejoin, "the first member learns of the second")
            counts = [len(first.join())]
            thread.join(TIMEOUT_S)
            assert sorted(counts + joined) == [1, 2]
            second.leave()
            wait_until(lambda: first.must_rejoin, "the first member learns that the second has left")
            assert len(first.join()) == 3
        finally:
            first.leave()
            second.leave()
