"""kwire group: the commands a person types, and that what they did outlives a kill."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
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
        assert row == {"group": name, "state": "Stable", "type": "classic", "protocol": "consumer"}
        described = group(kwire, "describe", name)
        (seen,) = described["members"]
        assert (seen["client"], seen["assignment"]) == ("somebody", f"{topic}:0,1")
        assert {(one["partition"], one["offset"], one["end"], one["lag"]) for one in described["offsets"]} >= {
            (0, 3, 3, 0)
        }
        assert "NonEmptyGroup" in refusal(kwire, "delete", name)
        assert "without members" in refusal(kwire, "reset", name, "--to", "earliest")
    assert [row["state"] for row in group(kwire, "list") if row["group"] == name] == ["Empty"]
    _, described, _ = run(kwire, "describe", name)
    assert f"{name}  Empty, classic" in described

    group(kwire, "reset", name, "--to", "earliest", "--topic", f"{topic}:0")
    assert committed(kwire, name)[topic, 0] == 0
    group(kwire, "reset", name, "--by", "2", "--topic", f"{topic}:0")
    assert committed(kwire, name)[topic, 0] == 2
    group(kwire, "reset", name, "--by", "-100", "--topic", f"{topic}:0")
    assert committed(kwire, name)[topic, 0] == 0
    dry = group(kwire, "reset", name, "--to", "latest", "--topic", topic, "--dry-run")
    assert [(row["partition"], row["to"]) for row in dry] == [(0, 3), (1, 0)]
    assert committed(kwire, name)[topic, 0] == 0
    group(kwire, "reset", name, "--to", "2000-01-01T00:00:00Z")
    assert committed(kwire, name)[topic, 0] == 0
    group(kwire, "reset", name, "--to", "2100-01-01")
    assert committed(kwire, name)[topic, 0] == 3
    group(kwire, "reset", name, "--to", "1")
    assert committed(kwire, name)[topic, 0] == 1

    assert group(kwire, "delete", name) == {"deleted": [name]}
    assert name not in [row["group"] for row in group(kwire, "list")]


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
        assert "NonEmptyGroup" in refusal(kwire, "delete", name)
    finally:
        consumer.close()
    assert group(kwire, "delete", name) == {"deleted": [name]}


def test_what_cannot_be_done_is_said(kwire: KwireProcess, topics: Topics) -> None:
    missing, topic = unique_name("no-group"), topics.create("cli-group")
    assert missing in refusal(kwire, "describe", missing)
    assert f"{missing}: GroupIdNotFoundError" in refusal(kwire, "delete", missing)
    assert "has no committed offsets" in refusal(kwire, "reset", missing, "--to", "earliest")
    assert "does not exist" in refusal(kwire, "reset", missing, "--to", "earliest", "--topic", unique_name("no-topic"))
    assert "no partition 7" in refusal(kwire, "reset", missing, "--to", "earliest", "--topic", f"{topic}:7")
    assert "not a partition number: 'x'" in refusal(
        kwire, "reset", missing, "--to", "earliest", "--topic", f"{topic}:x"
    )
    assert "got 'soon'" in refusal(kwire, "reset", missing, "--to", "soon", "--topic", topic)
    assert "--by needs a committed offset" in refusal(kwire, "reset", missing, "--by", "1", "--topic", topic)


def test_what_was_deleted_stays_deleted_after_a_kill_and_the_rest_stays(killable: KwireProcess) -> None:
    process = killable
    stays, goes, goes_with_its_topic = (unique_name(stem) for stem in ("stays", "goes", "goes-with-its-topic"))
    topics = Topics(process.bootstrap)
    kept, dropped = topics.create("kept", partitions=2), topics.create("dropped")
    topics.close()
    commit(process, stays, {TopicPartition(kept, 0): 5, TopicPartition(kept, 1): 6, TopicPartition(dropped, 0): 7})
    commit(process, goes, {TopicPartition(kept, 0): 8})
    commit(process, goes_with_its_topic, {TopicPartition(dropped, 0): 9})
    group(process, "delete", goes)
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
