"""HTTP members in virtual time: assignments after joins, leaves and expired sessions, and permission to commit."""

from typing import Any

import pytest
from msgspec.structs import replace

from kwire.coordinator.group.commands import (
    CommitOffsets,
    DeleteGroup,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
)
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, WebHeartbeat, WebHeartbeatAnswer, WebLeave
from kwire.coordinator.group.consumer.web_sessions import web_client_host, web_client_id
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.coordinator.group.web_group_commands import DefineGroup, SummarizeGroup
from kwire.errors import ErrorCode
from tests.coordinator.world import World

TOPIC = "orders"
GROUP = "g"
# Member, its subscription, the group's epoch, target and current assignment.
RECORDS_PER_MEMBER_MAX = 6


class Web:
    """A defined group, and what HTTP members ask of it."""

    def __init__(self, strategy: str, partition_count: int = 6) -> None:
        self.world = World()
        self.world.topics.put(TOPIC, partition_count)
        self.strategy = strategy
        self.world.consumer_settings = ConsumerSettings(
            assignors=(strategy, "uniform", "range"), is_retained_when_empty=True
        )
        self.world.with_topics()
        self.seen: list[int] = []

    def ask(self, command: Any) -> Any:
        answers: list[Any] = []
        self.world.groups.submit(command, answers.append)
        (answer,) = answers
        return answer

    def define(self) -> ErrorCode:
        error: ErrorCode = self.ask(DefineGroup(group_id=GROUP)).error
        return error

    def join(self, member_id: str, session_ms: int = 30_000) -> list[int]:
        answer = self.ask(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=frozenset({TOPIC}),
                server_assignor=self.strategy,
                owned={},
                client_id=web_client_id(session_ms),
                client_host=web_client_host("127.0.0.1"),
            )
        )
        assert answer.error is ErrorCode.NONE, answer.message
        return self._partitions(answer.assignment)

    def check_in(self, member_id: str, reading: list[int] | None = None) -> WebHeartbeatAnswer:
        owned = {self.topic_id: reading} if reading else {}
        answer: WebHeartbeatAnswer = self.ask(WebHeartbeat(group_id=GROUP, member_id=member_id, owned=owned))
        return answer

    def partitions(self, member_id: str) -> list[int]:
        answer = self.check_in(member_id)
        assert answer.error is ErrorCode.NONE, answer.message
        return self._partitions(answer.assigned)

    def settled(self, *member_ids: str) -> list[list[int]]:
        """What each has once all of them have checked in twice: first everybody lets go, then everybody takes."""
        for member_id in member_ids:
            self.partitions(member_id)
        found = [self.partitions(member_id) for member_id in member_ids]
        assert not any(self.check_in(one).is_rebalancing for one in member_ids)
        return found

    def leave(self, member_id: str) -> ErrorCode:
        error: ErrorCode = self.ask(WebLeave(group_id=GROUP, member_id=member_id)).error
        return error

    def commit(self, partition: int, offset: int, **who: Any) -> ErrorCode:
        to_commit = OffsetToCommit(TOPIC, partition, offset, topic_id=self.topic_id)
        (error,) = self.ask(CommitOffsets(group_id=GROUP, offsets=[to_commit], **{"is_by_web": True, **who}))
        assert isinstance(error, ErrorCode)
        return error

    def committed(self) -> dict[int, int]:
        answer = self.ask(FetchOffsets(group_id=GROUP, topics=None))
        return {index: one.offset for topic in answer.topics for index, one in topic.offsets}

    @property
    def topic_id(self) -> bytes:
        shape = self.world.topics.find(TOPIC)
        assert shape is not None
        return shape.topic_id

    def _partitions(self, assigned: Any) -> list[int]:
        return list((assigned or {}).get(self.topic_id, ()))


@pytest.mark.proves("S0-71")
def test_round_robin_deals_partitions_out_one_by_one() -> None:
    web = Web("round_robin")
    for member in "abc":
        web.join(member)
    assert web.settled("a", "b", "c") == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.proves("S0-72")
def test_range_gives_contiguous_blocks() -> None:
    web = Web("range")
    for member in "abc":
        web.join(member)
    assert web.settled("a", "b", "c") == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.proves("S0-73", "S0-91")
def test_sticky_moves_no_partition_that_need_not_move() -> None:
    web = Web("sticky")
    web.join("a")
    web.join("b")
    first = web.settled("a", "b")
    web.join("c")
    second = web.settled("a", "b", "c")
    assert [len(one) for one in second] == [2, 2, 2]
    assert set(second[0]) < set(first[0])
    assert set(second[1]) < set(first[1])
    assert web.leave("b") is ErrorCode.NONE
    third = web.settled("a", "c")
    assert set(third[0]) > set(second[0])
    assert set(third[1]) > set(second[2])


@pytest.mark.parametrize("strategy", ["round_robin", "range", "sticky"])
def test_a_rebalance_needs_two_heartbeats_of_each_member_and_waits_for_nothing(strategy: str) -> None:
    """One to let go and one to take; in between nobody waits for a timer."""
    web = Web(strategy)
    web.join("a")
    web.join("b")
    web.settled("a", "b")
    began_at, written = web.world.clock.monotonic(), len(web.world.log.appended)
    web.join("c")
    for member in "abc":
        web.check_in(member)
    answers = [web.check_in(member) for member in "abc"]
    assert not any(answer.is_rebalancing for answer in answers)
    assert sorted(index for one in answers for index in web._partitions(one.assigned)) == [0, 1, 2, 3, 4, 5]
    assert web.leave("b") is ErrorCode.NONE
    first = [web.check_in(member) for member in "ac"]
    # Who only takes what nobody has any more needs one heartbeat; the other strategies may move more.
    last = first if strategy == "sticky" else [web.check_in(member) for member in "ac"]
    assert not any(answer.is_rebalancing for answer in last)
    assert sorted(index for one in last for index in web._partitions(one.assigned)) == [0, 1, 2, 3, 4, 5]
    assert web.world.clock.monotonic() == began_at
    assert len(web.world.log.appended) - written <= RECORDS_PER_MEMBER_MAX * (3 + 2)


def test_a_commit_is_one_record_and_answered_as_soon_as_that_is_durable() -> None:
    web = Web("range")
    web.join("a")
    log, timers = web.world.log, web.world.timers
    written, timer_count = len(log.appended), timers.live_count()
    assert web.commit(0, 5) is ErrorCode.NONE
    assert len(log.appended) == written + 1
    assert timers.live_count() == timer_count
    log.is_holding = True
    answers: list[Any] = []
    to_commit = OffsetToCommit(TOPIC, 0, 6, topic_id=web.topic_id)
    web.world.groups.submit(CommitOffsets(group_id=GROUP, offsets=[to_commit], is_by_web=True), answers.append)
    assert (answers, len(log.appended)) == ([], written + 2)
    log.release()
    assert answers == [[ErrorCode.NONE]]
    assert web.committed() == {0: 6}


@pytest.mark.proves("S0-80", "S0-81", "S0-91")
@pytest.mark.parametrize("strategy", ["round_robin", "range", "sticky"])
def test_partitions_move_when_members_join_and_leave(strategy: str) -> None:
    web = Web(strategy)
    assert web.join("a") == [0, 1, 2, 3, 4, 5]
    web.join("b")
    assert [len(one) for one in web.settled("a", "b")] == [3, 3]
    web.join("c")
    assert [len(one) for one in web.settled("a", "b", "c")] == [2, 2, 2]
    assert web.leave("b") is ErrorCode.NONE
    left = web.settled("a", "c")
    assert [len(one) for one in left] == [3, 3]
    assert sorted(left[0] + left[1]) == [0, 1, 2, 3, 4, 5]


def test_a_partition_has_one_reader_at_a_time() -> None:
    web = Web("round_robin")
    web.join("a")
    assert web.join("b") == []
    assert web.check_in("b").is_rebalancing
    # Reads all of them still: nothing is free.
    told = web.check_in("a", reading=[0, 1, 2, 3, 4, 5])
    assert told.is_rebalancing
    assert told.assigned == {web.topic_id: [0, 2, 4]}
    assert web.partitions("b") == []
    # Stopped reading what is not its own.
    assert not web.check_in("a", reading=[0, 2, 4]).is_rebalancing
    assert web.partitions("b") == [1, 3, 5]


@pytest.mark.proves("S0-80", "S0-91")
def test_a_silent_member_is_out_when_its_own_session_is_over() -> None:
    web = Web("range")
    web.join("quick", session_ms=2_000)
    web.join("slow", session_ms=60_000)
    web.settled("quick", "slow")
    web.world.timers.advance(1_900)
    assert web.check_in("quick").error is ErrorCode.NONE
    web.world.timers.advance(1_900)
    assert web.check_in("quick").error is ErrorCode.NONE
    web.world.timers.advance(2_100)
    assert web.check_in("quick").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.partitions("slow") == [0, 1, 2, 3, 4, 5]


def test_members_and_their_sessions_survive_a_restart() -> None:
    web = Web("range")
    web.join("quick", session_ms=2_000)
    web.join("slow", session_ms=60_000)
    before = web.settled("quick", "slow")
    assert web.commit(3, 7) is ErrorCode.NONE
    web.world.restart()
    assert [web.partitions("quick"), web.partitions("slow")] == before
    assert web.committed() == {3: 7}
    web.world.timers.advance(2_100)
    assert web.check_in("quick").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.check_in("slow").error is ErrorCode.NONE


def test_very_many_members_that_join_one_after_the_other_share_one_computation() -> None:
    web = Web("range")
    web.world.consumer_settings = replace(web.world.consumer_settings, assigned_at_once_max=10)
    members = [f"m{number:02}" for number in range(20)]
    for member in members:
        web.join(member)
    (group,) = web.world.groups.consumer_groups()
    # Six partitions and five members are more than ten; the others are in, and wait.
    assert (len(group.members), group.target_epoch) == (20, 5)
    assert web.check_in("m19").is_rebalancing
    web.world.timers.advance(1_000)
    for _ in range(2):
        shares = [web.partitions(member) for member in members]
    assert sorted(one for share in shares for one in share) == [0, 1, 2, 3, 4, 5]
    assert group.target_epoch == group.group_epoch == 20


def test_new_partitions_are_taken_up() -> None:
    web = Web("round_robin", partition_count=2)
    web.join("a")
    assert web.partitions("a") == [0, 1]
    web.world.topics.put(TOPIC, 4)
    assert web.partitions("a") == [0, 1, 2, 3]


@pytest.mark.proves("S0-77", "S0-82", "S0-91")
def test_a_commit_without_a_member_is_an_administrators_and_what_is_committed_can_be_read_back() -> None:
    web = Web("range")
    assert web.commit(0, 5) is ErrorCode.NONE
    web.join("a")
    assert web.commit(0, 6) is ErrorCode.NONE
    assert web.commit(1, 0) is ErrorCode.NONE
    assert web.committed() == {0: 6, 1: 0}


def test_a_commit_with_a_member_or_a_generation_is_fenced() -> None:
    web = Web("range")
    web.join("a")
    epoch = web.check_in("a").member_epoch
    assert web.commit(0, 1, member_id="a") is ErrorCode.NONE
    assert web.commit(0, 2, member_id="a", generation_id=epoch) is ErrorCode.NONE
    assert web.commit(0, 3, generation_id=epoch) is ErrorCode.NONE
    assert web.commit(0, 4, member_id="gone") is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.commit(0, 4, member_id="gone", generation_id=epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    web.join("b")
    web.settled("a", "b")
    assert web.commit(0, 5, generation_id=epoch) is ErrorCode.STALE_MEMBER_EPOCH
    # `a` had partition 0 at that epoch and has it still, but not partition 5.
    assert web.commit(0, 5, member_id="a", generation_id=epoch) is ErrorCode.NONE
    assert web.commit(5, 5, member_id="a", generation_id=epoch) is ErrorCode.STALE_MEMBER_EPOCH
    assert web.commit(0, 6, member_id="a", generation_id=epoch + 9) is ErrorCode.STALE_MEMBER_EPOCH
    assert web.committed() == {0: 5}


def test_a_kafka_consumer_that_commits_alone_is_refused_while_there_are_members() -> None:
    web = Web("range")
    assert web.commit(0, 1, is_by_web=False) is ErrorCode.NONE
    web.join("a")
    assert web.commit(0, 2, is_by_web=False) is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.committed() == {0: 1}


def test_a_kafka_member_shares_the_partitions_and_speaks_for_itself() -> None:
    web = Web("range")
    web.join("a")
    joined = web.ask(
        ConsumerHeartbeat(
            group_id=GROUP,
            member_id="kafka",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=frozenset({TOPIC}),
            owned={},
            client_id="c",
            client_host="/h",
        )
    )
    assert joined.error is ErrorCode.NONE
    assert web.partitions("a") == [0, 1, 2]
    beat = web.ask(
        ConsumerHeartbeat(
            group_id=GROUP,
            member_id="kafka",
            member_epoch=joined.member_epoch,
            owned={},
            client_id="c",
            client_host="/h",
        )
    )
    assert beat.assignment == {web.topic_id: [3, 4, 5]}
    assert web.check_in("kafka").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.leave("kafka") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("client_id", [web_client_id(0), web_client_id(9_999_999_999), web_client_id(30_000)])
def test_a_kafka_client_that_calls_itself_like_an_http_member_is_none(client_id: str) -> None:
    web = Web("range")
    joined = web.ask(
        ConsumerHeartbeat(
            group_id=GROUP,
            member_id="kafka",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=frozenset({TOPIC}),
            owned={},
            client_id=client_id,
            client_host="/127.0.0.1",
        )
    )
    assert joined.error is ErrorCode.NONE
    assert web.check_in("kafka").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.leave("kafka") is ErrorCode.UNKNOWN_MEMBER_ID
    # It has the session that the group's settings say, no other.
    (group,) = web.world.groups.consumer_groups()
    expected_ms = int(web.world.clock.monotonic() * 1000) + web.world.consumer_settings.session_timeout_ms
    assert group.session_deadlines_ms == {"kafka": expected_ms}


def test_a_classic_consumer_makes_an_empty_group_its_own_and_keeps_it() -> None:
    web = Web("range")
    assert web.define() is ErrorCode.NONE
    joined = web.ask(
        JoinGroup(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            requires_member_id=True,
            fresh_id="x",
        )
    )
    assert joined.error is ErrorCode.MEMBER_ID_REQUIRED
    assert web.check_in("a").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert web.define() is ErrorCode.NON_EMPTY_GROUP


def test_a_group_that_classic_consumers_have_left_is_taken_over_with_its_offsets() -> None:
    web = Web("range")
    join = JoinGroup(
        group_id=GROUP,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_member_id=False,
        fresh_id="x",
    )
    web.world.groups.submit(join, lambda _: None)
    assert web.define() is ErrorCode.NON_EMPTY_GROUP
    (group,) = web.world.groups.groups()
    (member_id,) = group.members
    web.ask(LeaveGroup(group_id=GROUP, members=[LeavingMember(member_id, None)]))
    # The first rebalance of a classic group waits for more members.
    web.world.timers.advance(10_000)
    assert web.commit(1, 7, is_by_web=False) is ErrorCode.NONE
    assert web.define() is ErrorCode.NONE
    assert web.committed() == {1: 7}
    assert web.join("a") == [0, 1, 2, 3, 4, 5]
    web.world.restart()
    assert web.partitions("a") == [0, 1, 2, 3, 4, 5]
    assert web.committed() == {1: 7}


def test_a_defined_group_is_listed_and_stays_though_nobody_joins() -> None:
    web = Web("range")
    assert web.define() is ErrorCode.NONE
    assert web.define() is ErrorCode.NONE
    web.world.timers.advance(3_600_000)
    web.world.restart()
    listed = web.ask(ListGroups(group_id=GROUP))
    assert [(one.group_id, one.state, one.kind) for one in listed.groups] == [(GROUP, "Empty", "consumer")]
    web.world.consumer_settings = replace(web.world.consumer_settings, is_retained_when_empty=False)
    web.world.timers.advance(3_600_000)
    assert web.ask(ListGroups(group_id=GROUP)).groups == []


@pytest.mark.proves("S0-84")
def test_facts_tell_how_the_group_stands() -> None:
    web = Web("range")
    nothing = web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC))
    assert nothing.summary is None
    web.define()
    assert web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC)).summary == ("Empty", "consumer", 0, 1, 0)
    web.join("a")
    rebalanced_ms = web.world.clock.now_ms()
    web.commit(2, 9)
    web.world.timers.advance(5_000)
    answer = web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC))
    assert answer.summary == ("Stable", "consumer", 1, 2, rebalanced_ms)
    assert answer.committed == [(2, web.topic_id)]
    web.world.restart()
    assert web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC)) == answer
    web.join("b")
    assert web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC)).summary.state == "Reconciling"
    assert web.leave("a") is web.leave("b") is ErrorCode.NONE
    assert web.ask(DeleteGroup(group_id=GROUP)) is ErrorCode.NONE
    assert web.ask(SummarizeGroup(group_id=GROUP, topic=TOPIC)).summary is None


def test_who_watches_a_group_hears_when_partitions_may_move() -> None:
    web = Web("range")
    heard: list[str] = []

    def note() -> None:
        heard.append("moved")

    web.world.groups.watch(GROUP, note)
    web.join("a")
    assert heard
    heard.clear()
    web.partitions("a")
    web.commit(0, 1)
    assert heard == []
    web.join("b")
    assert heard
    web.world.groups.unwatch(GROUP, note)
    heard.clear()
    web.leave("b")
    assert heard == []


def test_nothing_is_decided_that_cannot_be_written_down() -> None:
    web = Web("range")
    web.join("a")
    web.world.log.is_failing = True
    assert web.leave("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    web.world.log.is_failing = False
    assert web.partitions("a") == [0, 1, 2, 3, 4, 5]
