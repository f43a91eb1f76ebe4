"""Membership: which request a member of a classic group sends next, response by response."""

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.groups.membership import JoinedMember, Membership, Phase, Timeouts
from kwire.wire.messages.heartbeat import HeartbeatResponse
from kwire.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kwire.wire.messages.sync_group import SyncGroupResponse

ME, OTHER = "me", "other"
PASSING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]


def join(code: ErrorCode = ErrorCode.NONE, leader: str = OTHER, generation: int = 1) -> JoinGroupResponse:
    members = [JoinGroupResponseMember(member_id=one, metadata=one.encode()) for one in (ME, OTHER)]
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation,
        protocol_name="range",
        leader=leader,
        member_id=ME,
        members=members if leader == ME else [],
    )


def sync(code: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"mine")


def beat(code: ErrorCode = ErrorCode.NONE) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def phase_of(one: Membership) -> Phase:
    return one.phase


def stable() -> Membership:
    one = Membership("g", Timeouts(10_000, 60_000))
    assert one.joined(join())
    assert one.synced(sync())
    assert phase_of(one) is Phase.STABLE
    return one


def test_a_member_gets_its_id_joins_and_gets_its_assignment() -> None:
    one = Membership("g", Timeouts(10_000, 60_000))
    first = one.join_request([("range", b"topics")])
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 10_000, 60_000)
    assert one.joined(join(ErrorCode.MEMBER_ID_REQUIRED))
    assert (phase_of(one), one.join_request([]).member_id) == (Phase.JOINING, ME)
    assert one.joined(join(generation=7))
    assert (phase_of(one), one.is_leader, one.generation) == (Phase.SYNCING, False, 7)
    asked = one.sync_request({})
    assert (asked.generation_id, asked.member_id, asked.protocol_name, asked.assignments) == (7, ME, "range", [])
    assert one.synced(sync())
    assert (phase_of(one), one.assignment, one.has_partitions) == (Phase.STABLE, b"mine", True)
    assert one.heartbeat_request().generation_id == 7


def test_the_leader_gets_the_members_and_sends_their_assignments() -> None:
    one = Membership("g", Timeouts(10_000, 60_000))
    one.joined(join(leader=ME))
    assert one.members == [JoinedMember(ME, None, b"me"), JoinedMember(OTHER, None, b"other")]
    sent = one.sync_request({ME: b"a", OTHER: b"b"}).assignments
    assert [(each.member_id, each.assignment) for each in sent] == [(ME, b"a"), (OTHER, b"b")]
    one.synced(sync())
    one.must_release()
    one.join_again()
    one.joined(join(leader=OTHER))
    assert not one.is_leader


def test_a_rebalance_waits_for_the_release_of_the_partitions() -> None:
    one = stable()
    assert one.heartbeat_answered(beat(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (phase_of(one), one.has_partitions) == (Phase.RELEASING, True)
    # Heartbeats go on while the partitions are released, and say the same.
    assert one.heartbeat_answered(beat(ErrorCode.REBALANCE_IN_PROGRESS))
    assert phase_of(one) is Phase.RELEASING
    one.join_again()
    assert (phase_of(one), one.has_partitions) == (Phase.JOINING, False)
    # The response to a heartbeat that was on its way changes nothing.
    assert one.heartbeat_answered(beat(ErrorCode.ILLEGAL_GENERATION))
    assert phase_of(one) is Phase.JOINING


@pytest.mark.parametrize("code", PASSING)
def test_what_passes_is_asked_again(code: ErrorCode) -> None:
    one = Membership("g", Timeouts(10_000, 60_000))
    assert not one.joined(join(code))
    assert phase_of(one) is Phase.JOINING
    one.joined(join())
    assert not one.synced(sync(code))
    assert phase_of(one) is Phase.JOINING
    one = stable()
    assert not one.heartbeat_answered(beat(code))
    assert phase_of(one) is Phase.STABLE


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_group_that_rebalances_during_the_sync_is_joined_again(code: ErrorCode) -> None:
    one = Membership("g", Timeouts(10_000, 60_000))
    one.joined(join())
    assert one.synced(sync(code))
    assert phase_of(one) is Phase.JOINING


def test_a_member_that_was_left_behind_loses_its_partitions_at_once() -> None:
    one = stable()
    assert one.heartbeat_answered(beat(ErrorCode.ILLEGAL_GENERATION))
    assert (phase_of(one), one.member_id) == (Phase.JOINING, ME)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_member_that_is_refused_has_ended(code: ErrorCode) -> None:
    joining = Membership("g", Timeouts(10_000, 60_000))
    joining.joined(join(code))
    syncing = Membership("g", Timeouts(10_000, 60_000))
    syncing.joined(join())
    syncing.synced(sync(code))
    beating = stable()
    beating.heartbeat_answered(beat(code))
    for one in (joining, syncing, beating):
        assert one.is_ended
        assert one.error is not None
        assert one.error.code is code
        # Nothing brings it back.
        one.join_again()
        one.must_release()
        one.end(KafkaError(ErrorCode.NONE, ""))
        assert (phase_of(one), one.error.code) == (Phase.ENDED, code)
