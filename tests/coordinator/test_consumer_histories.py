"""Random histories of consumer groups: invariants hold for any consumers, topics, times, log errors and restarts."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.coordinator import HasGroupId
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.errors import ErrorCode
from tests.coordinator.compaction import compacted
from tests.coordinator.world import World
from tests.support.effort import examples

SLOTS = 4
NAMES = ("app-1", "app-2", "web-1")
SUBSCRIPTIONS = (
    {"names": frozenset({"app-1"}), "regex": ""},
    {"names": frozenset({"app-1", "app-2", "web-1"}), "regex": ""},
    {"names": frozenset[str](), "regex": "app-.*"},
    {"names": frozenset({"web-1"}), "regex": ".*2"},
    {"names": frozenset[str](), "regex": ""},
)
SESSION_MS = 10_000
# More heartbeats of everybody than any change takes to settle.
ROUNDS = 12


class Consumer:
    """One process, as a client library behaves: what it owns is what it was last told. Even ones are static."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.instance_id = f"i{slot}" if slot % 2 == 0 else None
        self.starts = 0
        self.member_id = f"m{slot}-0"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.subscription: dict[str, Any] = SUBSCRIPTIONS[1]
        self.is_in = False

    def begin_again(self, *, is_new_process: bool) -> None:
        if is_new_process:
            self.starts += 1
            self.member_id = f"m{self.slot}-{self.starts}"
        self.epoch = 0
        self.owned = {}
        self.is_in = False


class ConsumerHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World().with_topics()
        self.world.consumer_settings = ConsumerSettings(session_timeout_ms=SESSION_MS, max_size=3)
        self.world.topics.put("app-1", 3)
        self.consumers = [Consumer(slot) for slot in range(SLOTS)]
        self.asked = 0
        self.answered = 0

    def ask(self, command: HasGroupId[Any], then: Callable[[Any], None]) -> None:
        self.asked += 1
        replies: list[Any] = []

        def reply(answer: Any) -> None:
            replies.append(answer)
            assert len(replies) == 1, "answered twice"
            self.answered += 1
            then(answer)

        self.world.groups.submit(command, reply)

    def group(self) -> ConsumerGroup | None:
        return next(self.world.groups.consumer_groups(), None)

    def beat(self, consumer: Consumer, *, is_full: bool = True) -> None:
        is_joining = consumer.epoch == 0
        says_all = is_joining or is_full
        command = ConsumerHeartbeat(
            group_id="g",
            member_id=consumer.member_id,
            member_epoch=consumer.epoch,
            instance_id=consumer.instance_id,
            rebalance_timeout_ms=5_000 if says_all else -1,
            subscribed_topic_names=consumer.subscription["names"] if says_all else None,
            subscribed_topic_regex=consumer.subscription["regex"] if says_all else None,
            owned=dict(consumer.owned) if says_all else None,
        )

        def told(answer: ConsumerHeartbeatAnswer) -> None:
            if answer.error is ErrorCode.NONE:
                assert answer.member_id == consumer.member_id
                consumer.epoch = answer.member_epoch
                consumer.is_in = True
                if answer.assignment is not None:
                    consumer.owned = {topic_id: list(indexes) for topic_id, indexes in answer.assignment.items()}
            elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                consumer.begin_again(is_new_process=False)
            elif answer.error is ErrorCode.FENCED_INSTANCE_ID:
                consumer.begin_again(is_new_process=True)
            else:
                assert answer.error in (
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.NOT_COORDINATOR,
                ), answer
                if answer.error is ErrorCode.GROUP_ID_NOT_FOUND:
                    consumer.begin_again(is_new_process=False)

        self.ask(command, told)

    @rule(slot=st.integers(0, SLOTS - 1), is_full=st.booleans())
    def heartbeat(self, slot: int, is_full: bool) -> None:
        self.beat(self.consumers[slot], is_full=is_full)

    @rule(slot=st.integers(0, SLOTS - 1), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, slot: int, subscription: dict[str, Any]) -> None:
        self.consumers[slot].subscription = subscription
        self.beat(self.consumers[slot])

    @rule(slot=st.integers(0, SLOTS - 1))
    def lose_answer(self, slot: int) -> None:
        consumer = self.consumers[slot]
        before = consumer.epoch, consumer.owned, consumer.is_in
        self.beat(consumer)
        if not self.world.log.is_holding:
            consumer.epoch, consumer.owned, consumer.is_in = before

    @rule(slot=st.integers(0, SLOTS - 1), is_static_leave=st.booleans())
    def leave(self, slot: int, is_static_leave: bool) -> None:
        consumer = self.consumers[slot]
        epoch = -2 if is_static_leave and consumer.instance_id else -1
        command = ConsumerHeartbeat(
            group_id="g", member_id=consumer.member_id, member_epoch=epoch, instance_id=consumer.instance_id
        )
        self.ask(command, lambda answer: None)
        consumer.begin_again(is_new_process=True)

    @rule(slot=st.integers(0, SLOTS - 1))
    def die(self, slot: int) -> None:
        self.consumers[slot].begin_again(is_new_process=True)

    @rule(slot=st.integers(0, SLOTS - 1), offset=st.integers(0, 100), lag=st.integers(0, 1))
    def commit(self, slot: int, offset: int, lag: int) -> None:
        consumer = self.consumers[slot]
        group = self.group()
        member = group.members.get(consumer.member_id) if group else None
        offsets = [
            OffsetToCommit("app-1", index, offset, 0)
            for topic_id, indexes in consumer.owned.items()
            if self.world.topics.name_of(topic_id) == "app-1"
            for index in indexes
        ]
        command = CommitOffsets(
            group_id="g", generation_id=consumer.epoch - lag, member_id=consumer.member_id, offsets=offsets
        )

        def told(errors: list[ErrorCode]) -> None:
            if member is not None and not self.world.log.is_failing and member.current.member_epoch == consumer.epoch:
                # A member that knows where it stands may always commit what it has.
                assert lag or all(error is ErrorCode.NONE for error in errors)

        self.ask(command, told)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def make_topic(self, name: str, count: int) -> None:
        known = self.world.topics.find(name)
        if known is None or known.partition_count < count:
            self.world.topics.put(name, count)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        if self.world.topics.find(name) is not None:
            self.world.topics.drop(name)

    @rule(milliseconds=st.sampled_from((10, 1_500, 6_000, 11_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.world.timers.advance(milliseconds)

    @rule(is_failing=st.booleans())
    def disk(self, is_failing: bool) -> None:
        self.world.log.is_failing = is_failing

    @rule(assigned_at_once_max=st.sampled_from((0, 1_000)))
    def configure(self, assigned_at_once_max: int) -> None:
        """With 0, targets are computed once in a second at most."""
        self.world.consumer_settings = replace(self.world.consumer_settings, assigned_at_once_max=assigned_at_once_max)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @invariant()
    def every_command_is_answered(self) -> None:
        assert self.answered == self.asked

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
    def no_partition_has_two_owners(self) -> None:
        group = self.group()
        if group is None:
            return
        held = [
            (topic_id, index)
            for member in group.members.values()
            for partitions in (member.current.assigned, member.current.revoking)
            for topic_id, indexes in partitions.items()
            for index in indexes
        ]
        assert len(held) == len(set(held))
        assert set(held) == set(group.owners)

    @invariant()
    def members_believe_no_more_than_they_have(self) -> None:
        """Two consumers of which the group knows never both believe that a partition is theirs."""
        group = self.group()
        if group is None:
            return
        for consumer in self.consumers:
            member = group.members.get(consumer.member_id)
            if member is None or not consumer.is_in:
                continue
            for topic_id, indexes in consumer.owned.items():
                for index in indexes:
                    assert group.owners[topic_id, index] == consumer.member_id

    def teardown(self) -> None:
        """When nothing happens any more, the group comes to rest, and every partition has one reader."""
        self.world.log.is_failing = False
        for _ in range(ROUNDS):
            for consumer in self.consumers[:3]:
                self.beat(consumer)
                if consumer.epoch:
                    self.beat(consumer)
            self.world.timers.advance(2_000)
        group = self.group()
        assert group is not None
        assert group.state == "Stable", group.state
        wanted = {
            (shape.topic_id, index)
            for name in group.subscribed
            if (shape := self.world.topics.find(name)) is not None
            for index in range(shape.partition_count)
        }
        assert set(group.owners) == wanted
        for consumer in self.consumers[:3]:
            current = group.members[consumer.member_id].current
            has = {topic_id: sorted(indexes) for topic_id, indexes in current.assigned.items()}
            assert {topic_id: sorted(indexes) for topic_id, indexes in consumer.owned.items()} == has
            assert consumer.epoch == current.member_epoch
        self.world.groups.close()


ConsumerHistory.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConsumerHistory = ConsumerHistory.TestCase
