"""The consumer protocol (KIP-848) with a stock client against a real server: members share, come, go and commit."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients import DEADLINE_S, unique_name
from tests.support.server import KwireProcess

PARTITIONS = 6


@pytest.fixture
def server(killable: KwireProcess) -> KwireProcess:
    return killable


@pytest.fixture
def topic(server: KwireProcess) -> str:
    return create_topic(server, unique_name("consumer-protocol"), PARTITIONS)


def create_topic(server: KwireProcess, name: str, partition_count: int) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, partition_count, 1)])[name].result(DEADLINE_S)
    return name


@contextmanager
def consuming(bootstrap: str, group: str, subscribe: str, **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
            **options,
        }
    )
    consumer.subscribe([subscribe])
    try:
        yield consumer
    finally:
        consumer.close()


def send(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def poll_until(consumers: list[Consumer], is_done: Callable[[list[str]], bool]) -> list[str]:
    """Let all of them poll until it is done; what they read."""
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while not is_done(values):
        assert time.monotonic() < deadline, [sorted(one.assignment(), key=str) for one in consumers]
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                values.append(message.value().decode())
    return values


def share_of(consumer: Consumer) -> set[int]:
    return {one.partition for one in consumer.assignment()}


def are_sharing(consumers: list[Consumer]) -> bool:
    """Whether every partition is with one of them, and nobody has much more than others."""
    shares = [share_of(one) for one in consumers]
    sizes = [len(one) for one in shares]
    return sum(sizes) == PARTITIONS == len(set().union(*shares)) and max(sizes) - min(sizes) <= 1


def test_members_share_come_and_go(server: KwireProcess, topic: str) -> None:
    group, admin = unique_name("group"), AdminClient({"bootstrap.servers": server.bootstrap})
    with ExitStack() as stack:
        members = [stack.enter_context(consuming(server.bootstrap, group, topic)) for _ in range(2)]
        poll_until(members, lambda _: are_sharing(members))
        sent = [f"v{number}" for number in range(30)]
        send(server.bootstrap, topic, sent)
        assert sorted(poll_until(members, lambda values: len(values) >= len(sent))) == sorted(sent)
        for member in members:
            committed = member.commit(asynchronous=False)
            assert [(one.offset, one.error) for one in committed] == [(5, None)] * 3, committed

        with consuming(server.bootstrap, group, topic) as third:
            # Each partition continues after its committed offset, so nothing is read again.
            assert poll_until([*members, third], lambda _: are_sharing([*members, third])) == []
            described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
            assert described.type is ConsumerGroupType.CONSUMER
            assert len(described.members) == 3
            assert {one.partition for member in described.members for one in member.assignment.topic_partitions} == set(
                range(PARTITIONS)
            )
        assert poll_until(members, lambda _: are_sharing(members)) == []
        # What was committed is where the group goes on.
        send(server.bootstrap, topic, ["one more"])
        assert poll_until(members, lambda values: len(values) > 0) == ["one more"]
        for member in members:
            member.commit(offsets=member.position(member.assignment()), asynchronous=False)
        found = members[0].committed([TopicPartition(topic, index) for index in range(PARTITIONS)], DEADLINE_S)
        assert sum(one.offset for one in found) == len(sent) + 1
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert described.state is ConsumerGroupState.EMPTY


def test_expression_finds_topics_of_today_and_tomorrow(server: KwireProcess) -> None:
    stem = unique_name("regex")
    create_topic(server, f"{stem}-a", 1)
    with consuming(server.bootstrap, unique_name("group"), f"^{stem}-.*") as member:
        poll_until([member], lambda _: {one.topic for one in member.assignment()} == {f"{stem}-a"})
        create_topic(server, f"{stem}-b", 1)
        poll_until([member], lambda _: {one.topic for one in member.assignment()} == {f"{stem}-a", f"{stem}-b"})


def test_static_member_takes_its_place_again(server: KwireProcess, topic: str) -> None:
    group, bootstrap = unique_name("group"), server.bootstrap
    with consuming(bootstrap, group, topic, **{"group.instance.id": "one"}) as first:
        with consuming(bootstrap, group, topic, **{"group.instance.id": "two"}) as second:
            poll_until([first, second], lambda _: are_sharing([first, second]))
            before, of_second = share_of(first), share_of(second)
        with consuming(bootstrap, group, topic, **{"group.instance.id": "two"}) as second:
            poll_until([first, second], lambda _: share_of(second) == of_second)
            assert share_of(first) == before


def test_members_go_on_after_the_server_was_killed(server: KwireProcess, topic: str) -> None:
    group = unique_name("group")
    with ExitStack() as stack:
        members = [stack.enter_context(consuming(server.bootstrap, group, topic)) for _ in range(2)]
        poll_until(members, lambda _: are_sharing(members))
        send(server.bootstrap, topic, [f"v{number}" for number in range(12)])
        poll_until(members, lambda values: len(values) >= 12)
        for member in members:
            member.commit(asynchronous=False)
        before = [share_of(member) for member in members]
        server.kill()
        server.restart()
        send(server.bootstrap, topic, ["after"])
        assert poll_until(members, lambda values: "after" in values) == ["after"]
        assert [share_of(member) for member in members] == before
        found = members[0].committed([TopicPartition(topic, index) for index in range(PARTITIONS)], DEADLINE_S)
        assert sum(one.offset for one in found) == 12
