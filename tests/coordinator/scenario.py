"""The language of `scenarios/*.txt`.

A scenario is a row of blocks, separated by empty lines. A block is a command, a line of dashes, and the trace it left:
what was appended, which requests were answered and how, each behind the time in milliseconds. `#` lines are comments.

    join A client=a protocols=range:topics
    ----
    0 A MEMBER_ID_REQUIRED member=a-1

The first word after a request command is the name by which its answer appears. Other commands: `advance <ms>`,
`show`, `restart`, `fail` and `heal` (appends), `hold` and `release` (commits), `settings` (first block only).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire.coordinator.group.classic import ClassicGroup
from kwire.coordinator.group.commands import (
    CommitOffsets,
    FetchAnswer,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    SyncAnswer,
    SyncGroup,
    TopicToFetch,
)
from kwire.coordinator.group.coordinator import NamesGroup
from kwire.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from tests.coordinator.world import World

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
        groups = sorted(self._world.groups.groups(), key=lambda group: group.group_id)
        for group in groups:
            self._trace.extend(_show_group(group))
        if not groups:
            self._trace.append("no groups")

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
            protocols=_protocols(asked.get("protocols", "range:topics")),
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
            assignments={name: data for name, data in _protocols(asked.get("assign", ""))},  # noqa: C416
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
            offsets.append(OffsetToCommit(topic, int(partition), int(offset), int(epoch), asked.get("metadata", "")))
        command = CommitOffsets(
            group_id=asked.get("group", "g"),
            generation_id=int(asked.get("generation", "-1")),
            member_id=asked.get("member", ""),
            group_instance_id=asked.get("instance"),
            retention_time_ms=int(asked.get("retention", "-1")),
            offsets=offsets,
        )
        self._ask(rest[0], command)

    def _fetch(self, rest: list[str]) -> None:
        """Topics as `topic:partition`; without any, everything."""
        asked = _arguments(rest[1:])
        pairs = [one.split(":") for one in asked["topics"].split(",")] if "topics" in asked else None
        topics = None if pairs is None else [TopicToFetch(topic, [int(partition)]) for topic, partition in pairs]
        self._ask(rest[0], FetchOffsets(group_id=asked.get("group", "g"), topics=topics))

    # Trace

    def _ask(self, name: str, command: NamesGroup[Any]) -> None:
        assert name not in self._open, f"{name} still waits for an answer"
        self._open.add(name)
        self._world.groups.ask(command, lambda answer: self._note_answer(name, answer))

    def _note_answer(self, name: str, answer: object) -> None:
        self._open.remove(name)
        self._note_appends()
        self._trace.append(f"{self._world.now_ms} {name} {_show_answer(answer)}")

    def _note_appends(self) -> None:
        for key, value in self._world.log.appended:
            self._trace.append(f"{self._world.now_ms} append {_show_record(key, value)}")
        self._world.log.appended.clear()


def _arguments(words: list[str]) -> Arguments:
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def _protocols(text: str) -> tuple[tuple[str, bytes], ...]:
    pairs = (one.partition(":") for one in text.split(",") if one)
    return tuple((name, data.encode()) for name, _, data in pairs)


def _show_answer(answer: object) -> str:
    match answer:
        case JoinAnswer():
            members = ",".join(f"{m.member_id}:{m.metadata.decode()}" for m in answer.members)
            parts = [answer.error.name, f"member={answer.member_id}"]
            if answer.generation_id >= 0:
                parts += [
                    f"generation={answer.generation_id} protocol={answer.protocol_name}",
                    f"leader={answer.leader} members=[{members}]",
                ]
            return " ".join(parts + ["skip_assignment"] * answer.skip_assignment)
        case SyncAnswer():
            return f"{answer.error.name} assignment={answer.assignment.decode()}"
        case LeaveAnswer():
            return f"{answer.error.name} [{','.join(error.name for error in answer.member_errors)}]"
        case FetchAnswer():
            offsets = [
                f"{topic.topic}-{partition}={found.offset}/{found.leader_epoch}/{found.metadata!r}"
                if found
                else f"{topic.topic}-{partition}=none"
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
            members = ",".join(f"{m.member_id}:{m.assignment.decode()}" for m in group.members)
            head = f"group {group_id} generation={group.generation} protocol={group.protocol}"
            return f"{head} leader={group.leader} members=[{members}]"
        case other:
            return str(other)


def _show_group(group: ClassicGroup) -> list[str]:
    lines = [f"{group.group_id} {group.phase.value} generation={group.generation_id} leader={group.leader_id}"]
    for member in group.members.values():
        waits = " joining" * (member.waiting_join is not None) + " syncing" * (member.waiting_sync is not None)
        lines.append(f"  {member.member_id} assignment={member.assignment.decode()}{waits}")
    if group.pending_members:
        lines.append(f"  pending {','.join(group.pending_members)}")
    return lines
