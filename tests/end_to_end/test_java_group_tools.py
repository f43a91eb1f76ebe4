"""Apache Kafka's tools for groups, unchanged: kafka-consumer-groups in all its forms, and kafka-groups."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.support.clients import DEADLINE_S, Topics, poll_records, produce_values, unique_name
from tests.support.java import JavaTools
from tests.support.server import Broker, wait_until
from tests.support.tool_server import ToolServer

# The first run fetches the tools with Maven. One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
]

CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"
OLD_RECORDS, NEW_RECORDS = 6, 4
HOUR_MS = 3_600_000
ALL_GROUPS_ATTEMPTS = 5
CLIENT_ID = "the-member"


class GroupTools:
    """The two tools against one broker."""

    def __init__(self, server: ToolServer, bootstrap: str) -> None:
        self.server = server
        self.bootstrap = bootstrap

    def consumer_groups(self, *arguments: str) -> str:
        return self.server.run(CONSUMER_GROUPS, "--bootstrap-server", self.bootstrap, *arguments)

    def kafka_groups(self, *arguments: str) -> str:
        return self.server.run("GroupsCommand", "--bootstrap-server", self.bootstrap, *arguments)

    def everything_said(self, *arguments: str) -> str:
        """Both streams of kafka-consumer-groups; how it ends does not tell whether it failed."""
        answer = self.server.call(CONSUMER_GROUPS, "--bootstrap-server", self.bootstrap, *arguments)
        return answer.stdout + answer.stderr

    def described(self, group: str, *arguments: str) -> list[dict[str, str]]:
        """The rows of a table; a group without members is told of on the other stream."""
        answer = self.server.call(
            CONSUMER_GROUPS, "--bootstrap-server", self.bootstrap, "--describe", "--group", group, *arguments
        )
        assert answer.exit_code == 0
        assert answer.stderr.strip() in ("", f"Consumer group '{group}' has no active members.")
        return rows(answer.stdout)

    def current(self, group: str) -> dict[int, str]:
        """Committed offsets of a group that works on one topic."""
        return {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in self.described(group)}

    def reset(self, group: str, *arguments: str) -> dict[int, int]:
        """Where the tool says that it goes."""
        table = rows(self.consumer_groups("--reset-offsets", "--group", group, *arguments))
        assert {row["GROUP"] for row in table} <= {group}
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in table}


def rows(table: str) -> list[dict[str, str]]:
    """Lines under a header, by column; warnings are left out."""
    header, *lines = (line.split() for line in table.splitlines() if line.strip() and not line.startswith("Warn: "))
    assert all(len(line) == len(header) for line in lines), f"not a table:\n{table}"
    return [dict(zip(header, line, strict=True)) for line in lines]


def listed_groups(output: str, *groups: str) -> dict[str, list[str]]:
    """What a list says of these groups. Others are passed over: their names may hold anything, ends of lines too."""
    lines = [line.split() for line in output.splitlines()]
    return {line[0]: line[1:] for line in lines if line and line[0] in groups}


@pytest.fixture(scope="module")
def tools(broker: Broker, java: JavaTools) -> GroupTools:
    return GroupTools(java.server, broker.bootstrap)


@pytest.fixture(scope="module")
def topic(broker: Broker, topics: Topics) -> str:
    """Two partitions; in the first some records are two hours old and some are new, in the second all are new."""
    name = topics.create("group-tools", partitions=2)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    now_ms = int(time.time() * 1000)
    for number in range(OLD_RECORDS + NEW_RECORDS):
        age_ms = 2 * HOUR_MS if number < OLD_RECORDS else 0
        producer.send(name, value=b"x", partition=0, timestamp_ms=now_ms - age_ms).get(timeout=DEADLINE_S)
    producer.close(timeout=DEADLINE_S)
    produce_values(broker.bootstrap, name, [b"x"] * 5, partition=1)
    return name


@contextmanager
def working(broker: Broker, group: str, topic: str) -> Iterator[Any]:
    """A member that has read everything and heartbeats from a thread of its client."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=CLIENT_ID,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        poll_records(consumer, OLD_RECORDS + NEW_RECORDS + 5)
        yield consumer
    finally:
        consumer.close(autocommit=False)


def test_groups_are_listed_by_state_and_type(broker: Broker, tools: GroupTools, topic: str) -> None:
    busy, idle = unique_name("busy"), unique_name("idle")
    tools.reset(idle, "--topic", topic, "--to-latest", "--execute")
    with working(broker, busy, topic):
        assert {busy, idle} <= set(tools.consumer_groups("--list").split())

        def listed(*arguments: str) -> dict[str, list[str]]:
            return listed_groups(tools.consumer_groups("--list", *arguments), busy, idle)

        assert listed("--state") == {busy: ["Stable"], idle: ["Empty"]}
        assert listed("--state", "stable") == {busy: ["Stable"]}
        assert listed("--type", "classic") == {busy: ["Classic"], idle: ["Classic"]}
        assert listed("--type", "consumer") == {}

        # The other tool knows groups of every kind.
        every = listed_groups(tools.kafka_groups("--list"), busy, idle)
        assert every[busy] == ["Classic", "consumer"]
        assert every[idle] == ["Classic"], "a group that only has offsets has no protocol"
        for filters, is_busy_in, is_idle_in in (
            (("--consumer",), True, True),
            (("--protocol", "consumer"), True, False),
            (("--group-type", "classic"), True, True),
            (("--group-type", "consumer"), False, False),
            (("--share",), False, False),
            (("--streams",), False, False),
        ):
            found = listed_groups(tools.kafka_groups("--list", *filters), busy, idle)
            assert (busy in found, idle in found) == (is_busy_in, is_idle_in), filters


def said_of_all_groups(broker: Broker, tools: GroupTools) -> str:
    """The tool fails as a whole when a group of some other test ends between its list and its descriptions."""
    words = ("--bootstrap-server", broker.bootstrap, "--describe", "--all-groups", "--state")
    for _ in range(ALL_GROUPS_ATTEMPTS):
        said = tools.server.call(CONSUMER_GROUPS, *words).stdout
        if "GroupIdNotFoundException" not in said:
            break
    return said


def test_a_group_at_work_is_described_and_protected(
    broker: Broker, topics: Topics, tools: GroupTools, topic: str
) -> None:
    group, elsewhere = unique_name("at-work"), topics.create("not-subscribed")
    with working(broker, group, topic) as consumer:
        consumer.commit(
            {
                TopicPartition(topic, 0): OffsetAndMetadata(4, "", -1),
                TopicPartition(elsewhere, 0): OffsetAndMetadata(0, "", -1),
            }
        )
        by_place = {(row["TOPIC"], row["PARTITION"]): row for row in tools.described(group)}
        mine = by_place[topic, "0"]
        assert (mine["GROUP"], mine["CLIENT-ID"], mine["HOST"]) == (group, CLIENT_ID, "/127.0.0.1")
        assert (mine["CURRENT-OFFSET"], mine["LOG-END-OFFSET"], mine["LAG"]) == ("4", "10", "6")
        assert mine["CONSUMER-ID"].startswith(f"{CLIENT_ID}-")
        nothing = by_place[topic, "1"]
        assert (nothing["CURRENT-OFFSET"], nothing["LOG-END-OFFSET"], nothing["LAG"]) == ("-", "5", "-")
        assert nothing["CONSUMER-ID"] == mine["CONSUMER-ID"]
        assert by_place[elsewhere, "0"]["CONSUMER-ID"] == "-"
        verbose = tools.described(group, "--offsets", "--verbose")
        assert {row["LEADER-EPOCH"] for row in verbose} == {"-"}

        (member,) = tools.described(group, "--members")
        assert (member["CONSUMER-ID"], member["#PARTITIONS"]) == (mine["CONSUMER-ID"], "2")
        said = tools.consumer_groups("--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}:0,1" in said.splitlines()[-1].split()
        state = tools.consumer_groups("--describe", "--group", group, "--state").splitlines()[-1].split()
        assert state[0] == group
        assert state[3:] == ["range", "Stable", "1"]
        verbose_state = tools.consumer_groups("--describe", "--group", group, "--state", "--verbose")
        assert verbose_state.splitlines()[-1].split()[3:] == ["range", "Stable", "-", "-", "1"]
        assert group in said_of_all_groups(broker, tools)

        refusal = tools.everything_said(
            "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
        )
        assert "can only be reset if the group" in refusal
        assert "Stable" in refusal
        assert "GroupNotEmptyException" in tools.everything_said("--delete", "--group", group)
        refusal = tools.everything_said("--delete-offsets", "--group", group, "--topic", topic)
        assert refusal.count("GroupSubscribedToTopicException") == 2
        # Nobody reads the other topic.
        done = tools.consumer_groups("--delete-offsets", "--group", group, "--topic", elsewhere)
        assert "Successful" in done
        assert tools.current(group) == {0: "4", 1: "-"}

    (state_line,) = tools.described(group, "--members") or [{}]
    assert state_line == {}
    assert tools.current(group) == {0: "4"}


def test_offsets_are_reset_in_every_form(tools: GroupTools, topic: str, tmp_path: Path) -> None:
    group = unique_name("reset")
    half_way = datetime.fromtimestamp(time.time() - HOUR_MS / 1000, UTC)
    stamp = half_way.isoformat(timespec="milliseconds").removesuffix("+00:00")
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,8\n{topic},1,1\n")
    forms: list[tuple[tuple[str, ...], dict[int, int]]] = [
        (("--to-offset", "3"), {0: 3, 1: 3}),
        (("--shift-by", "2"), {0: 5, 1: 5}),
        (("--shift-by", "-4"), {0: 1, 1: 1}),
        # Past either end is brought back to it.
        (("--shift-by", "7"), {0: 8, 1: 5}),
        (("--to-offset", "1000"), {0: 10, 1: 5}),
        (("--shift-by", "-1000"), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 5}),
        (("--by-duration", "PT1H"), {0: OLD_RECORDS, 1: 0}),
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-datetime", stamp), {0: OLD_RECORDS, 1: 0}),
        (("--to-datetime", f"{stamp}+00:00"), {0: OLD_RECORDS, 1: 0}),
        # No record is so new: the end.
        (("--to-datetime", "2099-12-31T23:59:59.999Z"), {0: 10, 1: 5}),
        (("--from-file", str(plan)), {0: 8, 1: 1}),
        (("--to-current",), {0: 8, 1: 1}),
    ]
    scope = ("--topic", topic)
    before: dict[int, str] = {}
    for form, expected in forms:
        where = () if form[0] == "--from-file" else scope
        assert tools.reset(group, *where, *form, "--dry-run") == expected, form
        if before:
            assert tools.current(group) == before, f"{form} changed something without being told to"
        assert tools.reset(group, *where, *form, "--execute") == expected, form
        before = {partition: str(offset) for partition, offset in expected.items()}
        assert tools.current(group) == before, form

    # One partition, and all topics of the group.
    assert tools.reset(group, "--topic", f"{topic}:1", "--to-latest", "--execute") == {1: 5}
    assert tools.reset(group, "--all-topics", "--to-earliest", "--dry-run") == {0: 0, 1: 0}
    assert tools.current(group) == {0: "8", 1: "5"}


def test_a_plan_that_was_exported_can_be_carried_out(tools: GroupTools, topic: str, tmp_path: Path) -> None:
    one, other = unique_name("one"), unique_name("other")

    def exported(*arguments: str) -> list[str]:
        said = tools.consumer_groups("--reset-offsets", *arguments, "--topic", topic, "--export", "--dry-run")
        return sorted(said.split())

    assert exported("--group", one, "--to-latest") == [f"{topic},0,10", f"{topic},1,5"]
    both = exported("--group", one, "--group", other, "--to-offset", "2")
    assert both == sorted(f"{group},{topic},{partition},2" for group in (one, other) for partition in (0, 1))
    plan = tmp_path / "both.csv"
    plan.write_text("\n".join(both) + "\n")
    groups = ("--group", one, "--group", other)
    # Before it reads the groups of a plan, the tool complains at length of a plan that names any.
    assert "Error:" not in tools.everything_said("--reset-offsets", *groups, "--from-file", str(plan), "--execute")
    assert tools.current(one) == tools.current(other) == {0: "2", 1: "2"}


def test_offsets_and_groups_are_deleted(tools: GroupTools, topic: str) -> None:
    one, other, kept = (unique_name(stem) for stem in ("one", "other", "kept"))
    for group in (one, other, kept):
        tools.reset(group, "--topic", topic, "--to-latest", "--execute")
    said = tools.consumer_groups("--delete-offsets", "--group", kept, "--topic", f"{topic}:0")
    assert "Request succeeded" in said
    assert tools.current(kept) == {1: "5"}
    refusal = tools.everything_said("--delete-offsets", "--group", kept, "--topic", unique_name("no-such-topic"))
    assert "UnknownTopicOrPartitionException" in refusal
    said = tools.consumer_groups("--delete", "--group", one, "--group", other)
    assert "was successful" in said
    left = set(tools.consumer_groups("--list").split())
    assert kept in left
    assert not {one, other} & left
    assert "GroupIdNotFoundException" in tools.everything_said("--delete", "--group", one)
    assert "GroupIdNotFoundException" in tools.everything_said("--describe", "--group", one)
    assert "GroupIdNotFoundException" in tools.everything_said("--delete-offsets", "--group", one, "--topic", topic)


def test_a_consumer_group_is_described_with_its_epochs(broker: Broker, tools: GroupTools, topic: str) -> None:
    group = unique_name("consumer-group")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": CLIENT_ID,
            "group.protocol": "consumer",
            "group.remote.assignor": "range",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 2, "the member owns both partitions")
        consumer.commit(offsets=[ConfluentPartition(topic, 0, 4)], asynchronous=False)
        assert listed_groups(tools.consumer_groups("--list", "--type"), group) == {group: ["Consumer"]}
        every = listed_groups(tools.kafka_groups("--list", "--group-type", "consumer"), group)
        assert every == {group: ["Consumer", "consumer"]}
        by_partition = {row["PARTITION"]: row for row in tools.described(group)}
        assert (by_partition["0"]["CURRENT-OFFSET"], by_partition["1"]["CURRENT-OFFSET"]) == ("4", "-")
        assert {row["CLIENT-ID"] for row in by_partition.values()} == {CLIENT_ID}

        def has_settled() -> bool:
            """Whether the member has told that it works on what it was given."""
            consumer.poll(0.1)
            state = tools.consumer_groups("--describe", "--group", group, "--state")
            return state.splitlines()[-1].split()[3:] == ["range", "Stable", "1"]

        wait_until(has_settled, "the group is stable")
        state = tools.consumer_groups("--describe", "--group", group, "--state", "--verbose")
        group_epoch, target_epoch, members = state.splitlines()[-1].split()[5:]
        assert (group_epoch, members) == (target_epoch, "1")
        said = tools.consumer_groups("--describe", "--group", group, "--members", "--verbose")
        # Without an upgrade every member speaks the new protocol, so the tool has no column for it.
        *_, partitions, epoch, owned, epoch_wanted, wanted = said.splitlines()[-1].split()
        assert (partitions, epoch, epoch_wanted) == ("2", group_epoch, group_epoch)
        assert owned == wanted == f"{topic}:0,1"
        assert "GroupNotEmptyException" in tools.everything_said("--delete", "--group", group)
        said = tools.everything_said("--delete-offsets", "--group", group, "--topic", topic)
        assert "GroupSubscribedToTopicException" in said
    finally:
        consumer.close()
    assert tools.reset(group, "--topic", topic, "--to-earliest", "--execute") == {0: 0, 1: 0}
    assert tools.current(group) == {0: "0", 1: "0"}
    assert "was successful" in tools.consumer_groups("--delete", "--group", group)
