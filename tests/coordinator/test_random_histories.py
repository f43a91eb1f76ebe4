"""Random histories of classic groups: invariants hold for any clients, times, log errors and restarts."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchAnswer,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    PartitionOfTopic,
    SyncAnswer,
    SyncGroup,
)
from kwire.coordinator.group.coordinator import HasGroupId
from kwire.errors import ErrorCode
from tests.coordinator.world import SHARD_COUNT, World
from tests.support.effort import examples

SLOTS = 4
PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"1"), ("sticky", b"1")),
    (("sticky", b"2"), ("range", b"2")),
)
# Longer than any session, rebalance or new member's join, one after the other.
LONG_MS = 2_000_000


class Client:
    """One consumer: what it believes about itself. Even ones are static."""

    def __init__(self, slot: int) -> None:
        self.instance = f"i{slot}" if slot % 2 == 0 else None
        self.member_id = ""
        self.generation_id = -1
        self.leads = False
        self.team: list[str] = []


class GroupHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(initial_rebalance_delay_ms=1000, max_size=3)
        self.clients = [Client(slot) for slot in range(SLOTS)]
        self.asked = 0
        self.answered = 0
        # What the members of a generation were told; a restart may take a generation back that was never stored.
        self.told: dict[int, tuple[str | None, str]] = {}
        self.offset = 0
        self.acknowledged = -1
        # How often somebody tried to delete offsets: what was committed before may be gone.
        self.deletions = 0

    def ask(self, command: HasGroupId[Any], then: Callable[[Any], None] = lambda answer: None) -> None:
        self.asked += 1
        replies: list[Any] = []

        def reply(answer: Any) -> None:
            replies.append(answer)
            assert len(replies) == 1, "answered twice"
            self.answered += 1
            then(answer)

        self.world.groups.submit(command, reply)

    def groups(self) -> list[ClassicGroup]:
        return [group for group in self.world.groups.groups() if isinstance(group, ClassicGroup)]

    @rule(
        slot=st.integers(0, SLOTS - 1),
        protocols=st.sampled_from(PROTOCOLS),
        forgets=st.booleans(),
        is_new_client=st.booleans(),
        session_timeout_ms=st.sampled_from((6_000, 10_000)),
    )
    def join(
        self,
        slot: int,
        protocols: tuple[tuple[str, bytes], ...],
        forgets: bool,
        is_new_client: bool,
        session_timeout_ms: int,
    ) -> None:
        client = self.clients[slot]
        if forgets:
            client.member_id = ""
        command = JoinGroup(
            group_id="g",
            member_id=client.member_id,
            group_instance_id=client.instance,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=8_000,
            protocol_type="consumer",
            protocols=protocols,
            requires_member_id=is_new_client,
            can_skip_assignment=True,
            fresh_id=self.world.groups.fresh_id(),
        )

        def joined(answer: JoinAnswer) -> None:
            if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            elif answer.error is ErrorCode.NONE:
                client.member_id = answer.member_id
                client.generation_id = answer.generation_id
                client.leads = answer.leader == answer.member_id and not answer.skip_assignment
                client.team = [member.member_id for member in answer.members]
                assert not client.leads or answer.member_id in client.team
                protocol, _ = self.told.setdefault(answer.generation_id, (answer.protocol_name, ""))
                assert protocol == answer.protocol_name, "two protocols in one generation"
            elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""

        self.ask(command, joined)

    @rule(slot=st.integers(0, SLOTS - 1), leaves_out=st.booleans())
    def sync(self, slot: int, leaves_out: bool) -> None:
        client = self.clients[slot]
        generation_id, member_id = client.generation_id, client.member_id
        team = client.team[1:] if leaves_out else client.team
        assignments = {one: f"{generation_id}:{one}".encode() for one in team} if client.leads else {}
        command = SyncGroup(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=client.instance,
            assignments=assignments,
        )

        def synced(answer: SyncAnswer) -> None:
            if answer.error is ErrorCode.NONE and answer.assignment and client.instance is None:
                # A static member inherits what its earlier self was given, under the earlier name.
                assert answer.assignment == f"{generation_id}:{member_id}".encode(), "somebody else's assignment"

        self.ask(command, synced)

    @rule(slot=st.integers(0, SLOTS - 1))
    def heartbeat(self, slot: int) -> None:
        client = self.clients[slot]
        self.ask(
            Heartbeat(
                group_id="g",
                generation_id=client.generation_id,
                member_id=client.member_id,
                group_instance_id=client.instance,
            )
        )

    @rule(slot=st.integers(0, SLOTS - 1), by_instance=st.booleans())
    def leave(self, slot: int, by_instance: bool) -> None:
        client = self.clients[slot]
        member_id = "" if by_instance else client.member_id
        self.ask(LeaveGroup(group_id="g", members=[LeavingMember(member_id, client.instance)]))

    @rule(slot=st.integers(0, SLOTS - 1), is_simple=st.booleans())
    def commit(self, slot: int, is_simple: bool) -> None:
        client = self.clients[slot]
        self.offset += 1
        offset, deletions = self.offset, self.deletions
        command = CommitOffsets(
            group_id="g",
            generation_id=-1 if is_simple else client.generation_id,
            member_id="" if is_simple else client.member_id,
            group_instance_id=None if is_simple else client.instance,
            offsets=[OffsetToCommit("t", 0, offset)],
        )

        def committed(errors: list[ErrorCode]) -> None:
            if errors == [ErrorCode.NONE] and deletions == self.deletions:
                self.acknowledged = max(self.acknowledged, offset)

        self.ask(command, committed)

    @rule(of_offsets=st.booleans())
    def delete(self, of_offsets: bool) -> None:
        self.deletions += 1
        self.acknowledged = -1
        if of_offsets:
            self.ask(DeleteOffsets(group_id="g", partitions=[PartitionOfTopic("t", 0)]))
        else:
            self.ask(DeleteGroup(group_id="g"), self.deleted)

    def deleted(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            # The next group of this name begins with the first generation again.
            self.told.clear()

    @rule()
    def describe_and_list(self) -> None:
        self.ask(DescribeGroup(group_id="g"))
        for key in self.world.groups.shard_keys:
            self.ask(ListGroups(group_id=key))

    @rule()
    def fetch(self) -> None:
        acknowledged, deletions = self.acknowledged, self.deletions

        def fetched(answer: FetchAnswer) -> None:
            if deletions != self.deletions:
                return
            found = [committed.offset for topic in answer.topics for _, committed in topic.offsets if committed]
            assert max(found, default=-1) >= acknowledged, "an acknowledged commit is lost"

        self.ask(FetchOffsets(group_id="g", topics=None), fetched)

    @rule(milliseconds=st.sampled_from((1, 500, 1_000, 5_000, 9_000, 30_000)))
    def advance(self, milliseconds: int) -> None:
        self.world.timers.advance(milliseconds)

    @rule()
    def restart(self) -> None:
        self.world.log.release()
        self.world.restart()
        self.told.clear()
        assert self.asked == self.answered, "a restart left somebody waiting"

    @rule(is_failing=st.booleans())
    def break_or_mend_the_disk(self, is_failing: bool) -> None:
        self.world.log.is_failing = is_failing

    @rule(is_holding=st.booleans())
    def hold_or_release_commits(self, is_holding: bool) -> None:
        if is_holding:
            self.world.log.is_holding = True
        else:
            self.world.log.release()

    @invariant()
    def replay_gives_the_durable_state(self) -> None:
        if any(True for _ in self.world.groups.shards()):
            assert self.world.durable() == self.world.replayed()

    @invariant()
    def the_group_is_sound(self) -> None:
        for group in self.groups():
            check(group)

    @invariant()
    def every_shard_has_at_most_one_timer(self) -> None:
        assert self.world.timers.live_count() <= SHARD_COUNT

    @invariant()
    def whoever_is_not_answered_waits(self) -> None:
        if not self.world.log.is_holding:
            assert self.asked - self.answered == self.world.groups.waiting_count()

    def teardown(self) -> None:
        """In the end everybody is answered, and members that fell silent are gone."""
        self.world.log.is_failing = False
        self.world.log.release()
        self.world.timers.advance(LONG_MS)
        assert self.asked == self.answered
        assert all(group.phase is Phase.EMPTY and not group.members for group in self.groups())
        if any(True for _ in self.world.groups.shards()):
            assert self.world.durable() == self.world.replayed()


def check(group: ClassicGroup) -> None:
    members = group.members.values()
    assert not set(group.pending_members) & set(group.members)
    assert {m.group_instance_id: m.member_id for m in members if m.is_static} == group.static_members
    assert all(member.member_id == member_id for member_id, member in group.members.items())
    assert group.pending_sync <= set(group.members)
    if group.members:
        assert group.leader_id in group.members
    if group.phase is Phase.EMPTY:
        assert not group.members
    if group.phase is not Phase.PREPARING:
        assert all(member.waiting_join is None for member in members)
    if group.phase is not Phase.COMPLETING:
        assert all(member.waiting_sync is None for member in members)
    if group.phase is Phase.STABLE and group.stored is not None:
        assert group.stored.generation == group.generation_id
        assert group.stored.protocol == group.protocol_name
        assert {m.member_id: m.assignment for m in group.stored.members} == {m.member_id: m.assignment for m in members}
    if group.wake_ms is not None or group.members:
        assert group.armed_ms is not None, "a group with deadlines has nobody to wake it"


class GroupHistoryOfTurns(GroupHistory):
    """The same where the commits of a loop turn share an append; turns end when the rule says so."""

    def __init__(self) -> None:
        super().__init__()
        self.world.with_turns()

    @rule()
    def end_turn(self) -> None:
        self.world.end_turn()

    def teardown(self) -> None:
        self.world.end_turn()
        super().teardown()


_SETTINGS = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRandomHistories = GroupHistory.TestCase
TestRandomHistories.settings = _SETTINGS
TestRandomHistoriesOfTurns = GroupHistoryOfTurns.TestCase
TestRandomHistoriesOfTurns.settings = _SETTINGS
