"""The language of `scenarios/*.txt`.

A scenario is a row of blocks, separated by empty lines. A block is a command, a line of dashes, and the trace it left:
what was appended, which requests were answered and how, each behind the time in milliseconds. `#` lines are comments.

    join A client=a protocols=range:topics
    ----
    0 A MEMBER_ID_REQUIRED member=a-1

The first word after a request command is the name by which its answer appears. Other commands: `advance <ms>`,
`show`, `restart`, `fail` and `heal` (appends), `hold` and `release` (commits), `settings` (first block only), `topic`
and `consumers`. What consumer groups are asked is in `consumer_scenario.py`.

A `commit` with a producer, `producer=7` or `producer=7:3` with its epoch, is part of a transaction; `end` ends one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kwire.coordinator.group.classic.embedded_protocol import read_assignment
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.subscriptions import subscribed_topics
from kwire.coordinator.group.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsAnswer,
    DescribeAnswer,
    DescribeGroup,
    FetchAnswer,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    ListedGroup,
    ListGroups,
    OffsetToCommit,
    PartitionOfTopic,
    SyncAnswer,
    SyncGroup,
    TopicToFetch,
)
from kwire.coordinator.group.consumer.commands import DescribeConsumerGroup
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from kwire.coordinator.group.coordinator import HasGroupId
from kwire.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from kwire.coordinator.group.settings import MigrationPolicy
from kwire.coordinator.log_records import PendingRecord, ProducerIdAndEpoch, Replayed, TransactionEnd
from kwire.errors import ErrorCode
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
    TopicPartition,
)
from kwire.wire.errors import WireError
from kwire.wire.types import ZERO_UUID
from tests.coordinator.consumer_scenario import (
    consumer_heartbeat,
    show_consumer_answer,
    show_consumer_group,
    show_consumer_record,
)
from tests.coordinator.world import World, all_pending

DIVIDER = "----"
Arguments = dict[str, str]


def rerun(path: Path) -> str:
    """The file as it would be if its traces were recorded now."""
    scenario = Scenario()
    blocks = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        head = lines[: lines.index(DIVIDER)] if DIVIDER in lines else lines
        commands = [line for line in head if not line.startswith("#")]
        trace = [line for command in commands for line in scenario.run(command)]
        blocks.append("\n".join([*head, *([DIVIDER, *trace] if commands else [])]))
    scenario.finish()
    return "\n\n".join(blocks) + "\n"


class Scenario:
    def __init__(self) -> None:
        self._world = World()
        self._trace: list[str] = []
        self._open: set[str] = set()

    def run(self, line: str) -> list[str]:
        word, *rest = line.split()
        self._trace = []
        run: Callable[[list[str]], None] = getattr(self, f"_{word}")
        run(rest)
        self._note_appends()
        return self._trace

    def finish(self) -> None:
        """Whatever happened, a restart would find what the coordinator knows."""
        assert self._world.durable() == self._world.replayed()

    # Commands

    def _settings(self, rest: list[str]) -> None:
        self._world = World(**{name: int(value) for name, value in _arguments(rest).items()})

    def _advance(self, rest: list[str]) -> None:
        self._world.timers.advance(int(rest[0]))

    def _restart(self, rest: list[str]) -> None:
        before = self._world.durable()
        self._world.restart()
        assert self._world.replayed() == before

    def _fail(self, rest: list[str]) -> None:
        self._world.log.is_failing = True

    def _heal(self, rest: list[str]) -> None:
        self._world.log.is_failing = False

    def _hold(self, rest: list[str]) -> None:
        self._world.log.is_holding = True

    def _release(self, rest: list[str]) -> None:
        self._world.log.release()

    def _show(self, rest: list[str]) -> None:
        for shard in self._world.groups.shards():
            for producer_id, place, (committed, is_superseded) in all_pending(shard):
                shown = f"{place.group_id} {place.topic}-{place.partition} {committed.offset}"
                self._trace.append(f"pending producer={producer_id} {shown}{' overtaken' * is_superseded}")
        groups = sorted(self._world.groups.groups(), key=lambda group: group.group_id)
        for group in groups:
            self._trace.extend(_show_group(group))
        consumer_groups = sorted(self._world.groups.consumer_groups(), key=lambda group: group.group_id)
        for consumer_group in consumer_groups:
            self._trace.extend(show_consumer_group(consumer_group, self._world.topics))
        if not groups and not consumer_groups:
            self._trace.append("no groups")

    def _topic(self, rest: list[str]) -> None:
        """Topics as `name:partitions`, made or widened; with no partitions, deleted."""
        if not self._world.has_topics:
            self._world.with_topics()
        for one in rest:
            name, _, count = one.partition(":")
            if count == "0":
                self._world.topics.drop(name)
            else:
                self._world.topics.put(name, int(count))

    def _consumers(self, rest: list[str]) -> None:
        """Settings of consumer groups, `assignors` as `a+b`, `migration_policy` by its name."""
        readers: dict[str, Callable[[str], Any]] = {
            "assignors": lambda value: tuple(value.split("+")),
            "migration_policy": MigrationPolicy,
        }
        given = {name: readers.get(name, int)(value) for name, value in _arguments(rest).items()}
        self._world.consumer_settings = replace(self._world.consumer_settings, **given)

    def _beat(self, rest: list[str]) -> None:
        self._ask(rest[0], consumer_heartbeat(_arguments(rest[1:]), self._world))

    def _inspect(self, rest: list[str]) -> None:
        self._ask(rest[0], DescribeConsumerGroup(group_id=_arguments(rest[1:]).get("group", "g")))

    def _join(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])
        version = int(asked.get("version", "9"))
        command = JoinGroup(
            group_id=asked.get("group", "g"),
            member_id=asked.get("member", ""),
            group_instance_id=asked.get("instance"),
            client_id=asked.get("client", "c"),
            client_host="/host",
            session_timeout_ms=int(asked.get("session", "10000")),
            rebalance_timeout_ms=int(asked.get("rebalance", "30000")),
            protocol_type=asked.get("type", "consumer"),
            protocols=_subscription(asked["subscribes"], asked.get("owns"), asked.get("by", "range"))
            if "subscribes" in asked
            else _protocols(asked.get("protocols", "range:topics")),
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            fresh_id=self._world.groups.fresh_id(),
        )
        self._ask(rest[0], command)

    def _sync(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])
        command = SyncGroup(
            group_id=asked.get("group", "g"),
            generation_id=int(asked["generation"]),
            member_id=asked["member"],
            group_instance_id=asked.get("instance"),
            protocol_type=asked.get("type"),
            protocol_name=asked.get("protocol"),
            assignments={
                **dict(_protocols(asked.get("assign", ""))),
                **_assignments(asked.get("give", ""), bytes.fromhex(asked.get("extra", ""))),
            },
        )
        self._ask(rest[0], command)

    def _heartbeat(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])
        command = Heartbeat(
            group_id=asked.get("group", "g"),
            generation_id=int(asked["generation"]),
            member_id=asked["member"],
            group_instance_id=asked.get("instance"),
        )
        self._ask(rest[0], command)

    def _leave(self, rest: list[str]) -> None:
        """Members as `id`, `id@instance` or `@instance`."""
        asked = _arguments(rest[1:])
        pairs = [one.partition("@") for one in asked["members"].split(",")]
        members = [LeavingMember(member_id, instance or None) for member_id, _, instance in pairs]
        self._ask(rest[0], LeaveGroup(group_id=asked.get("group", "g"), members=members))

    def _commit(self, rest: list[str]) -> None:
        """Offsets as `topic:partition:offset:epoch`."""
        asked = _arguments(rest[1:])
        offsets = []
        for one in asked["offsets"].split(","):
            topic, partition, offset, epoch = one.split(":")
            shape = self._world.topics.find(topic)
            topic_id = ZERO_UUID if shape is None else shape.topic_id
            metadata = asked.get("metadata", "")
            offsets.append(OffsetToCommit(topic, int(partition), int(offset), int(epoch), metadata, topic_id))
        command = CommitOffsets(
            group_id=asked.get("group", "g"),
            generation_id=int(asked.get("generation", "-1")),
            member_id=asked.get("member", ""),
            group_instance_id=asked.get("instance"),
            retention_time_ms=int(asked.get("retention", "-1")),
            knows_group_id_not_found=int(asked.get("version", "99")) >= 6,
            transaction=_transaction(asked["producer"]) if "producer" in asked else None,
            offsets=offsets,
        )
        self._ask(rest[0], command)

    def _end(self, rest: list[str]) -> None:
        """The marker of a transaction, `result=commit` or `abort`, for the shard of a group."""
        asked = _arguments(rest[1:])
        groups, name = self._world.groups, rest[0]
        assert name not in self._open, f"{name} still waits for an answer"
        self._open.add(name)
        groups.end_transaction(
            groups.shard_of(asked.get("group", "g")),
            *_transaction(asked["producer"]),
            0,
            {"commit": True, "abort": False}[asked["result"]],
            lambda error: self._note_answer(name, ErrorCode.NONE if error is None else error.code),
        )

    def _fetch(self, rest: list[str]) -> None:
        """Topics as `topic:partition`; without any, everything. `stable=yes` asks for stable ones."""
        asked = _arguments(rest[1:])
        pairs = [one.split(":") for one in asked["topics"].split(",")] if "topics" in asked else None
        topics = None if pairs is None else [TopicToFetch(topic, [int(partition)]) for topic, partition in pairs]
        command = FetchOffsets(
            group_id=asked.get("group", "g"),
            topics=topics,
            require_stable="stable" in asked,
            member_id=asked.get("member"),
            member_epoch=int(asked.get("epoch", "-1")),
        )
        self._ask(rest[0], command)

    def _describe(self, rest: list[str]) -> None:
        self._ask(rest[0], DescribeGroup(group_id=_arguments(rest[1:]).get("group", "g")))

    def _delete(self, rest: list[str]) -> None:
        self._ask(rest[0], DeleteGroup(group_id=_arguments(rest[1:]).get("group", "g")))

    def _forget(self, rest: list[str]) -> None:
        """Partitions as `topic:partition`; their offsets are deleted."""
        asked = _arguments(rest[1:])
        pairs = [one.split(":") for one in asked["partitions"].split(",")]
        partitions = [PartitionOfTopic(topic, int(partition)) for topic, partition in pairs]
        self._ask(rest[0], DeleteOffsets(group_id=asked.get("group", "g"), partitions=partitions))

    def _list(self, rest: list[str]) -> None:
        """The groups of all shards together; `states` and `kinds` as in the command."""
        asked = _arguments(rest)
        states, kinds = (frozenset(filter(None, asked.get(name, "").split(","))) for name in ("states", "kinds"))
        found: list[ListedGroup] = []
        for key in self._world.groups.shard_keys:
            command = ListGroups(group_id=key, states=states, kinds=kinds)
            self._world.groups.submit(command, lambda answer: found.extend(answer.groups))
        self._trace.extend(
            f"{one.group_id} {one.state} {one.kind} {one.protocol_type}".rstrip() for one in sorted(found)
        )

    # Trace

    def _ask(self, name: str, command: HasGroupId[Any]) -> None:
        assert name not in self._open, f"{name} still waits for an answer"
        self._open.add(name)
        self._world.groups.submit(command, lambda answer: self._note_answer(name, answer))

    def _note_answer(self, name: str, answer: object) -> None:
        self._open.remove(name)
        self._note_appends()
        shown = show_consumer_answer(answer, self._world.topics)
        self._trace.append(f"{self._world.now_ms} {name} {_show_answer(answer) if shown is None else shown}")

    def _note_appends(self) -> None:
        for one in self._world.log.appended:
            self._trace.append(f"{self._world.now_ms} append {self._show_appended(one)}")
        self._world.log.appended.clear()

    def _show_appended(self, one: Replayed) -> str:
        if isinstance(one, TransactionEnd):
            return f"{'COMMIT' if one.is_commit else 'ABORT'} producer={one.producer_id}"
        if isinstance(one, PendingRecord):
            return f"pending producer={one.producer_id} {_show_record(one.key, one.value)}"
        record = decode_record(*one)
        if isinstance(record, ConsumerGroupRecord):
            return show_consumer_record(record, self._world.topics)
        return _show_record(*one)


def _arguments(words: list[str]) -> Arguments:
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def _transaction(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition(":")
    return ProducerIdAndEpoch(int(producer_id), int(epoch or "0"))


def _protocols(text: str) -> tuple[tuple[str, bytes], ...]:
    pairs = (one.partition(":") for one in text.split(",") if one)
    return tuple((name, data.encode()) for name, _, data in pairs)


def _subscription(topics: str, owns: str | None, by: str) -> tuple[tuple[str, bytes], ...]:
    """What a consumer of these topics, `a+b`, tells its leader; one that keeps partitions says which, as `a:0+a:1`."""
    version = 0 if owns is None else 1
    owned: dict[str, list[int]] = {}
    for one in filter(None, (owns or "").split("+")):
        topic, _, index = one.partition(":")
        owned.setdefault(topic, []).append(int(index))
    said = ConsumerProtocolSubscription(
        topics=topics.split("+"),
        owned_partitions=[OwnedTopicPartition(topic=topic, partitions=indexes) for topic, indexes in owned.items()],
    )
    return tuple((name, version.to_bytes(2, "big") + encode_message(said, version)) for name in by.split("+"))


def _assignments(text: str, user_data: bytes) -> dict[str, bytes]:
    """What a leader gives, as `member=topic:0+topic:1,other=topic:2`, written as consumers do."""
    given: dict[str, bytes] = {}
    for one in filter(None, text.split(",")):
        member, _, places = one.partition("=")
        by_topic: dict[str, list[int]] = {}
        for place in filter(None, places.split("+")):
            topic, _, index = place.partition(":")
            by_topic.setdefault(topic, []).append(int(index))
        assignment = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic=topic, partitions=found) for topic, found in by_topic.items()],
            user_data=user_data or None,
        )
        given[member] = b"\x00\x01" + encode_message(assignment, 1)
    return given


def _assignment(data: bytes) -> str:
    """Partitions if consumers can read it, else the text it is."""
    if not data.startswith(b"\x00"):
        return data.decode()
    try:
        found = read_assignment(data).assigned_partitions
    except WireError:
        return data.decode()
    return "+".join(f"{one.topic}:{index}" for one in found for index in one.partitions)


def _metadata(data: bytes) -> str:
    """Topics if it is a subscription, else the text it is."""
    topics = subscribed_topics("g", [data]) if data.startswith(b"\x00") else None
    return data.decode() if topics is None else "+".join(sorted(topics))


def _show_answer(answer: object) -> str:
    match answer:
        case JoinAnswer():
            members = ",".join(f"{m.member_id}:{_metadata(m.metadata)}" for m in answer.members)
            parts = [answer.error.name, f"member={answer.member_id}"]
            if answer.generation_id >= 0:
                parts += [
                    f"generation={answer.generation_id} protocol={answer.protocol_name}",
                    f"leader={answer.leader} members=[{members}]",
                ]
            return " ".join(parts + ["skip_assignment"] * answer.skip_assignment)
        case SyncAnswer():
            return f"{answer.error.name} assignment={_assignment(answer.assignment)}"
        case DescribeAnswer():
            shown = ",".join(
                f"{m.member_id}:{m.client_host}:{_metadata(m.metadata)}:{_assignment(m.assignment)}"
                for m in answer.members
            )
            head = f"{answer.error.name} {answer.state} type={answer.protocol_type} protocol={answer.protocol_name}"
            return f"{head} members=[{shown}]"
        case DeleteOffsetsAnswer():
            return f"{answer.error.name} [{','.join(error.name for error in answer.errors)}]"
        case LeaveAnswer():
            return f"{answer.error.name} [{','.join(error.name for error in answer.member_errors)}]"
        case FetchAnswer():
            offsets = [
                f"{topic.topic}-{partition}={found.offset}/{found.leader_epoch}/{found.metadata!r}"
                if found
                else f"{topic.topic}-{partition}={'unstable' if partition in topic.unstable else 'none'}"
                for topic in answer.topics
                for partition, found in topic.offsets
            ]
            return f"{answer.error.name} [{' '.join(offsets)}]"
        case list():
            return f"[{','.join(error.name for error in answer)}]"
        case _:
            return str(getattr(answer, "name", answer))


def _show_record(key: bytes, value: bytes | None) -> str:
    match decode_record(key, value):
        case OffsetCommitRecord(key=place, value=offset):
            stored = f"{offset.offset}/{offset.leader_epoch}" if offset else "tombstone"
            return f"offset {place.group} {place.topic}-{place.partition} {stored}"
        case GroupMetadataRecord(group_id=group_id, value=None):
            return f"group {group_id} tombstone"
        case GroupMetadataRecord(group_id=group_id, value=group) if group:
            members = ",".join(f"{m.member_id}:{_assignment(m.assignment)}" for m in group.members)
            head = f"group {group_id} generation={group.generation} protocol={group.protocol}"
            return f"{head} leader={group.leader} members=[{members}]"
        case other:
            return str(other)


def _show_group(group: ClassicGroup) -> list[str]:
    lines = [f"{group.group_id} {group.phase.value} generation={group.generation_id} leader={group.leader_id}"]
    for member in group.members.values():
        waits = " joining" * (member.waiting_join is not None) + " syncing" * (member.waiting_sync is not None)
        lines.append(f"  {member.member_id} assignment={_assignment(member.assignment)}{waits}")
    if group.pending_members:
        lines.append(f"  pending {','.join(group.pending_members)}")
    return lines
