"""kwire group: the commands a person types, and that what they did outlives a kill."""

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.structs import OffsetAndMetadata

from kwire.cli import main
from tests.support.clients import Topics, poll_records, produce_values, unique_name
from tests.support.clients_raw import RawConnection
from tests.support.server import KwireProcess, wait_until


def run(process: KwireProcess, verb: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code and what was printed. The program runs in here: there are many commands, and each would start anew."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main(["group", verb, *arguments, "--bootstrap-server", process.bootstrap])
    return code, out.getvalue(), errors.getvalue()


def group(process: KwireProcess, verb: str, *arguments: str) -> Any:
    code, out, errors = run(process, verb, *arguments, "--json")
    assert code == 0, out + errors
    return json.loads(out)


def refusal(process: KwireProcess, verb: str, *arguments: str) -> str:
    code, out, errors = run(process, verb, *arguments)
    assert code != 0, out
    return errors


def commit(process: KwireProcess, group_id: str, offsets: dict[TopicPartition, int]) -> None:
    consumer = KafkaConsumer(bootstrap_servers=process.bootstrap, group_id=group_id, enable_auto_commit=False)
    try:
        consumer.assign(list(offsets))
        consumer.commit({one: OffsetAndMetadata(offset, "note", -1) for one, offset in offsets.items()})
    finally:
        consumer.close()


def restart(process: KwireProcess) -> None:
    """Start the server again and wait until it has loaded all groups; it refuses to list them before."""
    process.restart()
    wait_until(lambda: run(process, "list")[0] == 0, "the groups are loaded")


def committed(process: KwireProcess, group_id: str) -> dict[tuple[str, int], int]:
    described = group(process, "describe", group_id)
    return {(row["topic"], row["partition"]): row["offset"] for row in described["offsets"]}


@contextmanager
def member(process: KwireProcess, group_id: str, topic: str) -> Iterator[Any]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=process.bootstrap,
        group_id=group_id,
        client_id="somebody",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def test_group_is_listed_described_reset_and_deleted(kwire: KwireProcess, topics: Topics) -> None:
    name, topic = unique_name("cli-group"), topics.create("cli-group", partitions=2)
    produce_values(kwire.bootstrap, topic, [b"a", b"b", b"c"])
    with member(kwire, name, topic) as consumer:
        assert len(poll_records(consumer, 3)) == 3
        consumer.commit()
        (row,) = [row for row in group(kwire, "list", "--state", "stable") if row["group"] == name]
        assert row == {"group": name, "state": "Stable", "type": "classic", "protocol": "consumer", "lag": 0}
        described = group(kwire, "describe", name)
        (seen,) = described["members"]
        assert (seen["client"], seen["assignment"]) == ("somebody", f"{topic}:0,1")
        assert {(one["partition"], one["offset"], one["end"], one["lag"]) for one in described["offsets"]} >= {
            (0, 3, 3, 0)
        }
        assert "has members" in refusal(kwire, "delete", "--yes", name)
        assert "is Stable: only a group without members" in refusal(kwire, "reset", name, "--to-earliest", "--execute")
    assert [row["state"] for row in group(kwire, "list") if row["group"] == name] == ["Empty"]
    _, described, _ = run(kwire, "describe", name)
    assert f"{name}  Empty, classic" in described

    def reset(*arguments: str) -> int:
        """Reset the first partition, and return its new offset."""
        before = committed(kwire, name)
        (shown, *_) = group(kwire, "reset", name, *arguments)
        assert committed(kwire, name) == before, "without --execute nothing changes"
        (done, *_) = group(kwire, "reset", name, *arguments, "--execute")
        assert (done["offset"], done["to"]) == (shown["offset"], shown["to"])
        assert committed(kwire, name)[topic, 0] == done["to"]
        return int(done["to"])

    only_first = ("--topic", f"{topic}:0")
    assert reset("--to-earliest", *only_first) == 0
    assert reset("--shift-by", "2", *only_first) == 2
    assert reset("--to-current", *only_first) == 2
    assert reset("--shift-by", "-100", *only_first) == 0
    assert reset("--to-latest", "--all-topics") == 3
    assert reset("--to-offset", "1") == 1
    assert reset("--by-duration", "P1DT2H") == 0
    assert reset("--to-datetime", "2100-01-01") == 3
    assert reset("--to-datetime", "2000-01-01T00:00:00Z") == 0
    assert reset("--to", "2100-01-01") == 3
    assert reset("--to", "1") == 1

    assert group(kwire, "delete", "--yes", name) == {"deleted": [name]}
    assert name not in [row["group"] for row in group(kwire, "list")]


def test_offsets_are_exported_imported_and_deleted(kwire: KwireProcess, topics: Topics, tmp_path: Path) -> None:
    first, second, topic = unique_name("cli-one"), unique_name("cli-two"), topics.create("cli-offsets", partitions=2)
    produce_values(kwire.bootstrap, topic, [b"a", b"b", b"c"])
    commit(kwire, first, {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0})
    commit(kwire, second, {TopicPartition(topic, 0): 1})
    code, out, errors = run(kwire, "export", first)
    assert (code, out, errors) == (0, f"{topic},0,2\n{topic},1,0\n", "")
    file = tmp_path / "offsets.csv"
    code, out, errors = run(kwire, "export", first, second, "--to", str(file))
    assert (code, out, errors) == (0, f"exported {first}\nexported {second}\n", "")
    assert file.read_text() == f"{first},{topic},0,2\n{first},{topic},1,0\n{second},{topic},0,1\n"

    group(kwire, "reset", first, second, "--to-latest", "--execute")
    assert [committed(kwire, name)[topic, 0] for name in (first, second)] == [3, 3]
    code, out, errors = run(kwire, "reset", first, second, "--from-file", str(file), "--execute")
    assert code == 0, errors
    assert [committed(kwire, name)[topic, 0] for name in (first, second)] == [2, 1]
    file.write_text(f"{topic},zero,1\n")
    assert "line 1: expected topic,partition,offset" in refusal(kwire, "reset", first, "--from-file", str(file))

    assert "has no committed offset for" in refusal(kwire, "delete-offsets", first, "--topic", f"{topic}:7", "--yes")
    assert group(kwire, "delete-offsets", first, "--topic", f"{topic}:1", "--yes") == {"deleted": [f"{topic}-1"]}
    assert committed(kwire, first) == {(topic, 0): 2}
    assert refusal(kwire, "export", unique_name("none"), first).startswith("kwire: group ")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_lag_is_shown_in_offsets_and_in_seconds(kwire: KwireProcess, topics: Topics, compression: str | None) -> None:
    name, topic = unique_name("cli-lag"), topics.create("cli-lag")
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap, compression_type=compression, linger_ms=200)
    now_ms = int(time.time() * 1000)
    for age_s in (3600, 600, 60):
        producer.send(topic, b"x" * 200, timestamp_ms=now_ms - age_s * 1000, partition=0)
    producer.close()
    for offset, age_s in ((0, 3600), (1, 600), (2, 60)):
        commit(kwire, name, {TopicPartition(topic, 0): offset})
        (row,) = group(kwire, "describe", name)["offsets"]
        assert row["lag"] == 3 - offset
        assert age_s <= row["lag_seconds"] < age_s + 60
    commit(kwire, name, {TopicPartition(topic, 0): 3})
    (row,) = group(kwire, "describe", name)["offsets"]
    assert (row["lag"], row["lag_seconds"]) == (0, 0)


def test_group_of_the_consumer_protocol_is_described_with_its_members(kwire: KwireProcess, topics: Topics) -> None:
    name, topic = unique_name("cli-consumers"), topics.create("cli-consumers", partitions=2)
    produce_values(kwire.bootstrap, topic, [b"a"])
    consumer = Consumer(
        {
            "bootstrap.servers": kwire.bootstrap,
            "group.id": name,
            "group.protocol": "consumer",
            "client.id": "modern",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.2), "no record")
        consumer.commit(asynchronous=False)
        assert [row["type"] for row in group(kwire, "list", "--type", "consumer") if row["group"] == name] == [
            "consumer"
        ]
        described = group(kwire, "describe", name)
        assert [(one["client"], one["assignment"]) for one in described["members"]] == [("modern", f"{topic}:0,1")]
        assert {(one["partition"], one["offset"]) for one in described["offsets"]} >= {(0, 1)}
        assert "has members" in refusal(kwire, "delete", "--yes", name)
    finally:
        consumer.close()
    assert group(kwire, "delete", "--yes", name) == {"deleted": [name]}


def test_what_cannot_be_done_is_said(kwire: KwireProcess, topics: Topics) -> None:
    missing, topic = unique_name("no-group"), topics.create("cli-group")
    assert missing in refusal(kwire, "describe", missing)
    assert f"group {missing} does not exist" in refusal(kwire, "delete", "--yes", missing)
    assert "has no committed offsets" in refusal(kwire, "reset", missing, "--to", "earliest")
    assert "got 'soon'" in refusal(kwire, "reset", missing, "--by-duration", "soon", "--topic", topic)
    assert "cannot be used together" in refusal(kwire, "reset", missing, "--to", "0", "--topic", topic, "--all-topics")
    assert "does not exist" in refusal(kwire, "reset", missing, "--to", "earliest", "--topic", unique_name("no-topic"))
    assert "no partition 7" in refusal(kwire, "reset", missing, "--to", "earliest", "--topic", f"{topic}:7")
    assert "not a partition number: 'x'" in refusal(
        kwire, "reset", missing, "--to", "earliest", "--topic", f"{topic}:x"
    )
    assert "got 'soon'" in refusal(kwire, "reset", missing, "--to", "soon", "--topic", topic)
    assert "--shift-by needs a committed offset" in refusal(kwire, "reset", missing, "--by", "1", "--topic", topic)


def test_what_was_deleted_stays_deleted_after_a_kill_and_the_rest_stays(killable: KwireProcess) -> None:
    process = killable
    stays, goes, goes_with_its_topic = (unique_name(stem) for stem in ("stays", "goes", "goes-with-its-topic"))
    topics = Topics(process.bootstrap)
    kept, dropped = topics.create("kept", partitions=2), topics.create("dropped")
    topics.close()
    commit(process, stays, {TopicPartition(kept, 0): 5, TopicPartition(kept, 1): 6, TopicPartition(dropped, 0): 7})
    commit(process, goes, {TopicPartition(kept, 0): 8})
    commit(process, goes_with_its_topic, {TopicPartition(dropped, 0): 9})
    group(process, "delete", "--yes", goes)
    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        admin.delete_group_offsets(stays, [TopicPartition(kept, 1)])
        admin.delete_topics([dropped])
    finally:
        admin.close()
    process.kill()
    restart(process)
    assert committed(process, stays) == {(kept, 0): 5}

    def is_left(group_id: str) -> bool:
        return group_id in [row["group"] for row in group(process, "list")]

    assert is_left(stays)
    assert not is_left(goes)
    wait_until(lambda: not is_left(goes_with_its_topic), "a group without topics is gone")
    assert is_left(stays)


def _topic(name: str, offset: int) -> Any:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return topic(name=name, partitions=[partition])


def test_offsets_expire_also_in_a_group_that_nobody_asks_for(start_kwire: Callable[..., KwireProcess]) -> None:
    """The commit brings a retention time of its own, as old clients could; after the next start it is found over."""
    process = start_kwire(settings={"offsets.retention.check.interval.ms": "600000"})
    topics = Topics(process.bootstrap)
    name = topics.create("expiring")
    topics.close()
    commit(process, "stays", {TopicPartition(name, 0): 5})
    old = OffsetCommitRequest(
        group_id="goes",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=1,
        topics=[_topic(name, 6)],
    )
    with RawConnection(process.kafka_address) as connection:
        answer = connection.call(old, 4)
        assert answer.topics[0].partitions[0].error_code == 0
    process.stop()
    process.settings["offsets.retention.check.interval.ms"] = "100"
    restart(process)
    wait_until(lambda: [row["group"] for row in group(process, "list")] == ["stays"], "the group is still there")
    assert committed(process, "stays") == {(name, 0): 5}
