"""Partitions for events: the same key, the same partition as with every Kafka client; without keys, in turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kwire.streams.events import partitioning
from kwire.streams.events.partitioning import Partitioner, murmur2, partition_for_key


@pytest.mark.proves("S0-63")
@pytest.mark.parametrize(
    ("key", "signed"),
    [  # what Kafka's own UtilsTest expects
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
    assert partition_for_key(key, 7) == (signed & 0x7FFFFFFF) % 7


@pytest.mark.proves("S0-63")
@given(st.binary(max_size=200), st.integers(1, 1000))
def test_key_lands_where_kafka_python_puts_it(key: bytes, partition_count: int) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) % 2**32
    theirs = DefaultPartitioner().partition("orders", None, key, None, None, Cluster(partition_count))
    assert Partitioner().choose("orders", key, partition_count) == theirs


class Cluster:
    """What kafka-python's partitioner asks."""

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count

    def topics(self) -> set[str]:
        return {"orders"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._partition_count))

    available_partitions_for_topic = partitions_for_topic


@pytest.mark.proves("S0-64")
def test_without_a_key_every_partition_of_a_topic_has_its_turn() -> None:
    partitioner = Partitioner()
    turns = [(partitioner.choose("a", None, 3), partitioner.choose("b", None, 2)) for _ in range(6)]
    assert turns == [(0, 0), (1, 1), (2, 0), (0, 1), (1, 0), (2, 1)]
    assert partitioner.choose("a", b"key", 3) == partition_for_key(b"key", 3)
    assert partitioner.choose("a", None, 3) == 0


def test_topics_that_were_not_used_lately_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "COUNTERS_MAX", 2)
    partitioner = Partitioner()
    assert [partitioner.choose(name, None, 9) for name in "abacab"] == [0, 0, 1, 0, 2, 0]
