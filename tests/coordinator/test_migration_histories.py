"""Random histories of group migration: invariants hold for any members, topics, times, log errors and restarts."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kwire.coordinator.group.classic.embedded_protocol import read_assignment, read_subscription, write_assignment
from kwire.coordinator.group.commands import (
    CommitOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    SyncAnswer,
    SyncGroup,
)
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.coordinator import HasGroupId
from kwire.coordinator.group.replacement import AnyGroup
from kwire.coordinator.group.settings import ConsumerSettings, MigrationPolicy
from kwire.errors import ErrorCode
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription, OwnedTopicPartition
from tests.coordinator.compaction import compacted
from tests.coordinator.world import World
from tests.support.effort import examples

SLOTS = 4
TOPIC = "t"
SESSION_MS = 10_000
REBALANCE_MS = 8_000
# More rounds of everybody than any change takes to settle.
ROUNDS = 16
COME_BACK = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS)


class Process:
    """A consumer as a client library behaves, of either protocol. Two are static; odd ones are cooperative."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.instance_id = f"i{slot}" if slot < 2 else None
        self.is_cooperative = slot % 2 == 1
        self.is_classic = True
        self.starts = 0
        self.restart(is_classic=True)

    def restart(self, *, is_classic: bool) -> None:
        self.is_classic = is_classic
        self.starts += 1
        # A member of the consumer protocol brings its id, a classic one is told.
        self.member_id = "" if is_classic else f"m{self.slot}-{self.starts}"
        self.begin_again()

    def begin_again(self) -> None:
        self.epoch = -1 if self.is_classic else 0
        self.owned: set[int] = set()
        self.has_joined = False
        self.is_waiting = False
        self.is_in = False

    def subscription(self) -> bytes:
        if not self.is_cooperative:
            return b"\x00\x00" + encode_message(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
        owned = [OwnedTopicPartition(topic=TOPIC, partitions=sorted(self.owned))] if self.owned else []
        said = ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=owned)
        return b"\x00\x01" + encode_message(said, 1)


class MigrationHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(initial_rebalance_delay_ms=0).with_topics()
        self.world.consumer_settings = ConsumerSettings(session_timeout_ms=SESSION_MS)
        self.world.topics.put(TOPIC, 4)
        self.processes = [Process(slot) for slot in range(SLOTS)]

    # What a client does

    def ask(self, command: HasGroupId[Any], then: Callable[[Any], None]) -> None:
        replies: list[Any] = []

        def reply(answer: Any) -> None:
            replies.append(answer)
            assert len(replies) == 1, "answered twice"
            then(answer)

        self.world.groups.submit(command, reply)

    def group(self) -> AnyGroup | None:
        return next((shard.groups["g"] for shard in self.world.groups.shards() if "g" in shard.groups), None)

    def go_on(self, process: Process) -> None:
        """The next thing that this process would ask."""
        if not process.is_classic:
            self.beat(process)
        elif process.is_waiting:
            pass
        elif not process.has_joined:
            self.join(process)
        else:
            self.heartbeat(process)

    def beat(self, process: Process) -> None:
        topic = self.world.topics.find(TOPIC)
        assert topic is not None
        command = ConsumerHeartbeat(
            group_id="g",
            member_id=process.member_id,
            member_epoch=process.epoch,
            instance_id=process.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=frozenset({TOPIC}),
            owned={topic.topic_id: sorted(process.owned)} if process.owned else {},
        )
        start = process.starts

        def told(answer: ConsumerHeartbeatAnswer) -> None:
            if process.starts != start:
                return
            if answer.error is ErrorCode.NONE:
                process.epoch = answer.member_epoch
                process.is_in = True
                if answer.assignment is not None:
                    process.owned = {index for indexes in answer.assignment.values() for index in indexes}
            elif answer.error not in (*COME_BACK, ErrorCode.UNRELEASED_INSTANCE_ID):
                assert answer.error in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    ErrorCode.FENCED_INSTANCE_ID,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                ), answer
                process.begin_again()

        self.ask(command, told)

    def join(self, process: Process) -> None:
        if not process.is_cooperative:
            # It gives up everything before.
            process.owned = set()
        command = JoinGroup(
            group_id="g",
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            client_id=f"c{process.slot}",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", process.subscription()),),
            requires_member_id=process.slot != 3,
            fresh_id=self.world.groups.fresh_id(),
        )
        process.is_waiting = True
        start = process.starts

        def told(answer: JoinAnswer) -> None:
            if process.starts != start:
                return
            process.is_waiting = False
            if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                process.member_id = answer.member_id
                self.join(process)
            elif answer.error is ErrorCode.NONE:
                process.member_id, process.epoch = answer.member_id, answer.generation_id
                self.sync(process, answer)
            elif answer.error not in COME_BACK:
                self.dismissed(process, answer.error)

        self.ask(command, told)

    def sync(self, process: Process, joined: JoinAnswer) -> None:
        assignments = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = self.lead(joined)
        command = SyncGroup(
            group_id="g",
            generation_id=process.epoch,
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        process.is_waiting = True
        start = process.starts

        def told(answer: SyncAnswer) -> None:
            if process.starts != start:
                return
            process.is_waiting = False
            process.has_joined = answer.error is ErrorCode.NONE
            if answer.error is ErrorCode.NONE:
                process.is_in = True
                given = read_assignment(answer.assignment).assigned_partitions if answer.assignment else []
                before, process.owned = process.owned, {index for one in given for index in one.partitions}
                if process.is_cooperative and before - process.owned:
                    # It has given something up, and asks for the rest of its share.
                    process.has_joined = False
            elif answer.error not in COME_BACK:
                self.dismissed(process, answer.error)

        self.ask(command, told)

    def lead(self, joined: JoinAnswer) -> dict[str, bytes]:
        """Partitions in turn; what a cooperative member still has goes to nobody until it has given it up."""
        topic = self.world.topics.find(TOPIC)
        assert topic is not None
        ids = [member.member_id for member in joined.members]
        held = {
            index: member.member_id
            for member in joined.members
            for one in read_subscription(member.metadata).owned_partitions
            for index in one.partitions
        }
        shares: dict[str, list[int]] = {member_id: [] for member_id in ids}
        for index in range(topic.partition_count):
            wanted = ids[index % len(ids)]
            if held.get(index, wanted) == wanted:
                shares[wanted].append(index)
        return {member_id: write_assignment({TOPIC: indexes}, 1) for member_id, indexes in shares.items()}

    def dismissed(self, process: Process, error: ErrorCode) -> None:
        assert error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID), error
        member_id = process.member_id
        process.begin_again()
        if error is ErrorCode.ILLEGAL_GENERATION:
            process.member_id = member_id
        else:
            process.member_id = ""

    def heartbeat(self, process: Process) -> None:
        command = Heartbeat(
            group_id="g",
            generation_id=process.epoch,
            member_id=process.member_id,
            group_instance_id=process.instance_id,
        )
        start = process.starts

        def told(error: ErrorCode) -> None:
            if process.starts != start:
                return
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                process.has_joined = False
            elif error not in (ErrorCode.NONE, *COME_BACK):
                self.dismissed(process, error)

        self.ask(command, told)

    # What happens

    @rule(slot=st.integers(0, SLOTS - 1))
    def work(self, slot: int) -> None:
        self.go_on(self.processes[slot])

    @rule()
    def all_work(self) -> None:
        for process in self.processes:
            self.go_on(process)

    @rule(slot=st.integers(0, SLOTS - 1), is_classic=st.booleans(), in_peace=st.booleans())
    def replace_process(self, slot: int, is_classic: bool, in_peace: bool) -> None:
        """A rolling restart, of either direction."""
        process = self.processes[slot]
        if in_peace and process.is_in:
            self.say_farewell(process)
        process.restart(is_classic=is_classic)

    def say_farewell(self, process: Process) -> None:
        if not process.is_classic:
            epoch = -1 if process.instance_id is None else -2
            command = ConsumerHeartbeat(
                group_id="g", member_id=process.member_id, member_epoch=epoch, instance_id=process.instance_id
            )
            self.ask(command, lambda answer: None)
        elif process.instance_id is None:
            self.ask(LeaveGroup(group_id="g", members=[LeavingMember(process.member_id)]), lambda answer: None)

    @rule(slots=st.sets(st.integers(0, SLOTS - 1), min_size=1))
    def administrator_removes(self, slots: set[int]) -> None:
        members = [LeavingMember(self.processes[slot].member_id, self.processes[slot].instance_id) for slot in slots]
        self.ask(LeaveGroup(group_id="g", members=members), lambda answer: None)

    @rule(slot=st.integers(0, SLOTS - 1), offset=st.integers(0, 100))
    def commit(self, slot: int, offset: int) -> None:
        process = self.processes[slot]
        group = self.group()
        offsets = [OffsetToCommit(TOPIC, index, offset) for index in sorted(process.owned)]
        command = CommitOffsets(group_id="g", generation_id=process.epoch, member_id=process.member_id, offsets=offsets)
        if isinstance(group, ConsumerGroup) and process.member_id in group.members:
            is_known = group.members[process.member_id].current.member_epoch == process.epoch
        else:
            is_known = False

        def told(errors: list[ErrorCode]) -> None:
            if is_known and not self.world.log.is_failing:
                assert all(error is ErrorCode.NONE for error in errors), errors

        self.ask(command, told)

    @rule(count=st.integers(4, 7))
    def widen(self, count: int) -> None:
        topic = self.world.topics.find(TOPIC)
        assert topic is not None
        if topic.partition_count < count:
            self.world.topics.put(TOPIC, count)

    @rule(policy=st.sampled_from((MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)))
    def configure(self, policy: MigrationPolicy) -> None:
        self.world.consumer_settings = ConsumerSettings(session_timeout_ms=SESSION_MS, migration_policy=policy)

    @rule(milliseconds=st.sampled_from((0, 10, 1_500, 6_000, 11_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.world.timers.advance(milliseconds)

    @rule(is_failing=st.booleans())
    def disk(self, is_failing: bool) -> None:
        self.world.log.is_failing = is_failing

    @rule()
    def restart(self) -> None:
        self.world.restart()

    # What holds

    @invariant()
    def restart_would_find_the_same(self) -> None:
        if any(self.world.groups.shards()):
            assert self.world.durable() == self.world.replayed()

    @invariant()
    def compaction_changes_nothing(self) -> None:
        logs = self.world.log.shards
        before = self.world.replayed()
        self.world.log.shards = {shard: compacted(records) for shard, records in logs.items()}
        try:
            assert self.world.replayed() == before
        finally:
            self.world.log.shards = logs

    @invariant()
    def members_believe_no_more_than_they_have(self) -> None:
        """In a consumer group no two members that it knows, of whichever protocol, believe a partition to be theirs."""
        group = self.group()
        if not isinstance(group, ConsumerGroup):
            return
        topic = self.world.topics.find(TOPIC)
        assert topic is not None
        for process in self.processes:
            member = group.members.get(process.member_id)
            if member is None or not process.is_in or member.current.member_epoch != process.epoch:
                continue
            for index in process.owned:
                assert group.owners[topic.topic_id, index] == process.member_id

    def teardown(self) -> None:
        """When nothing happens any more, the group comes to rest, and every partition has one reader."""
        self.world.log.is_failing = False
        self.world.consumer_settings = ConsumerSettings(session_timeout_ms=SESSION_MS)
        for _ in range(ROUNDS):
            for process in self.processes:
                self.go_on(process)
            self.world.timers.advance(2_000)
        group, topic = self.group(), self.world.topics.find(TOPIC)
        assert group is not None
        assert topic is not None
        assert group.state == "Stable", group.state
        assert set(group.members) == {process.member_id for process in self.processes}
        for process in self.processes:
            assert process.is_in
            assert process.has_joined or not process.is_classic
        owned = sorted(index for process in self.processes for index in process.owned)
        if any(not process.is_classic for process in self.processes):
            assert isinstance(group, ConsumerGroup)
            assert owned == list(range(topic.partition_count))
        else:
            # A leader may not have been told of new partitions: it watches topics itself.
            assert len(owned) == len(set(owned))
        self.world.groups.close()


MigrationHistory.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMigrationHistory = MigrationHistory.TestCase


def test_partitions_that_nobody_was_given_before_an_upgrade_get_a_reader() -> None:
    """Found by chance once: the member that upgrades the group says nothing new, so nothing else asks for a target."""
    history = MigrationHistory()
    for _ in range(3):
        history.all_work()
    history.widen(count=5)
    history.replace_process(in_peace=False, is_classic=False, slot=0)
    history.teardown()
