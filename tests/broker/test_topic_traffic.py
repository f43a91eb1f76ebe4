"""What topics take in and give out is counted, whatever becomes of their logs meanwhile."""

import os
import random
from collections import Counter
from pathlib import Path

from kwire.broker.partition import Partition
from kwire.broker.partition.traffic import Traffic
from kwire.broker.topics.topic_traffic import TopicTraffic
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.effort import repetitions
from tests.support.node import QuietNode, in_loop


def append(partition: Partition, record_count: int = 1) -> Traffic:
    batch = make_batch(record_count, timestamp_ms=0)
    partition.append(batch, check_batch(batch))
    return Traffic(appended_bytes=len(batch), appended_records=record_count)


def fetch(partition: Partition, size_bytes: int, record_count: int) -> Traffic:
    """What the handler of Fetch counts."""
    partition.fetched_bytes += size_bytes
    partition.fetched_records += record_count
    return Traffic(fetched_bytes=size_bytes, fetched_records=record_count)


def counted(node: QuietNode) -> TopicTraffic:
    node.topics.traffic.add_from(node.topics.open_partitions)
    return node.topics.traffic


@in_loop
async def test_appended_bytes_and_records_are_counted_by_topic(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 2)
        other = await node.create_partition("other")
        expected = append(topic.partitions[0], 3).plus(append(topic.partitions[1], 4))
        append(other)
        assert counted(node).by_topic["t"] == expected
        assert expected.appended_records == 7
        assert counted(node).by_topic["t"] == expected
        assert set(node.topics.traffic.by_topic) == {"t", "other"}


@in_loop
async def test_a_parked_log_keeps_its_count_and_goes_on(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        expected = append(partition, 5).plus(fetch(partition, 100, 2))
        assert node.topics.park(partition)
        assert node.topics.traffic.by_topic["t"] == expected
        expected = expected.plus(append(partition, 2))
        assert counted(node).by_topic["t"] == expected


@in_loop
async def test_records_of_an_earlier_run_are_not_counted(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        append(await node.create_partition("t"), 5)
        node.restart()
        topic = node.topics.get("t")
        assert topic is not None
        assert topic.partitions[0].log_end_offset == 5
        assert counted(node).by_topic == {}


@in_loop
async def test_the_count_goes_with_the_topic(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        append(topic.partitions[0])
        assert set(counted(node).by_topic) == {"t"}
        await node.topics.delete(topic)
        assert counted(node).by_topic == {}
        again = await node.create_partition("t")
        expected = append(again, 2)
        assert counted(node).by_topic == {"t": expected}


@in_loop
async def test_topics_beyond_the_maximum_share_a_count(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "kwire.metrics.topics.max=2") as node:
        each = [append(await node.create_partition(f"t{number}")) for number in range(5)]
        traffic = counted(node)
        assert set(traffic.by_topic) == {"t0", "t1"}
        assert traffic.of_other_topics == each[2].plus(each[3]).plus(each[4])


@in_loop
async def test_with_the_maximum_0_no_topic_has_a_count_of_its_own(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "kwire.metrics.topics.max=0") as node:
        expected = append(await node.create_partition("t"))
        assert counted(node).by_topic == {}
        assert node.topics.traffic.of_other_topics == expected


@in_loop
async def test_rooms_share_a_count(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        rooms = [await node.create_partition(f"room{number}", kwire_room="true") for number in range(2)]
        expected = append(rooms[0]).plus(append(rooms[1]))
        traffic = counted(node)
        assert (traffic.by_topic, traffic.of_rooms) == ({}, expected)


@in_loop
async def test_no_traffic_is_lost_or_counted_twice(tmp_path: Path) -> None:
    """Random appends, fetches, parked logs, deletions and scrapes, compared with a plain sum of all of them."""
    first = int(os.environ.get("KWIRE_TEST_SEED", random.randrange(2**32)))
    for seed in range(first, first + repetitions(quick=3, full=15)):
        print(f"KWIRE_TEST_SEED={seed}")
        await _compare_with_sums(tmp_path / str(seed), random.Random(seed))


async def _compare_with_sums(directory: Path, chance: random.Random) -> None:
    with QuietNode(directory, "kwire.metrics.topics.max=3") as node:
        total, gone = Traffic(), Traffic()
        sums: Counter[str] = Counter()
        topics = {name: await node.create(name, 2) for name in "abcdef"}
        for _ in range(150):
            name = chance.choice(list(topics))
            partition = chance.choice(topics[name].partitions)
            action = chance.choice(("append", "append", "fetch", "park", "scrape", "delete"))
            if action == "append":
                added = append(partition, chance.randint(1, 3))
                total = total.plus(added)
                sums[name] += added.appended_records
            elif action == "fetch" and partition.is_open:
                total = total.plus(fetch(partition, chance.randint(1, 99), chance.randint(1, 9)))
            elif action == "park":
                node.topics.park(partition)
            elif action == "scrape":
                counted(node)
            elif action == "delete" and chance.random() < 0.2:
                gone = gone.plus(counted(node).by_topic.get(name, Traffic()))
                await node.topics.delete(topics[name])
                topics[name] = await node.create(name, 2)
                sums[name] = 0
        traffic = counted(node)
        assert len(traffic.by_topic) <= 3
        shown = gone.plus(traffic.of_other_topics)
        for one in traffic.by_topic.values():
            shown = shown.plus(one)
        assert shown == total
        for name, one in traffic.by_topic.items():
            # A topic that got its place late was among the others before.
            assert one.appended_records <= sums[name]
