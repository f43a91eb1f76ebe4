"""JoinGroup in every version, at once and waiting."""

import asyncio

import pytest

from kwire.errors import ErrorCode
from kwire.handlers.join_group import handle
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.coordinator.context import call, context_of
from tests.coordinator.world import World


def request(member_id: str = "", instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )


@pytest.mark.parametrize("version", range(10))
def test_single_member_leads_the_first_generation(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    response = call(handle, context_of(world, version), request())
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        response = call(handle, context_of(world, version), request(response.member_id))
    assert response.error_code == 0
    assert response.generation_id == 1
    assert response.member_id.startswith("client-")
    assert response.leader == response.member_id
    assert response.protocol_name == "range"
    assert [(one.member_id, one.metadata) for one in response.members] == [(response.member_id, b"topics")]
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    (group,) = world.groups.groups()
    (member,) = group.members.values()
    assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)
    assert member.client_host == "/10.0.0.9"


@pytest.mark.parametrize("version", range(5, 10))
def test_static_member_needs_no_second_round(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    response = call(handle, context_of(world, version), request(instance="i"))
    assert response.error_code == 0
    assert response.member_id.startswith("i-")
    assert response.members[0].group_instance_id == "i"


@pytest.mark.parametrize("version", range(10))
def test_error_has_no_protocol(version: int) -> None:
    response = call(handle, context_of(World(), version), request("nobody"))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.protocol_name == (None if version >= 7 else "")
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])


def test_join_waits_until_the_generation_begins() -> None:
    world = World(initial_rebalance_delay_ms=3_000)

    async def scenario() -> JoinGroupResponse:
        waiting = handle(context_of(world, 3), request())
        assert isinstance(waiting, asyncio.Future)
        assert not waiting.done()
        world.timers.advance(3_000)
        response: JoinGroupResponse = await asyncio.wait_for(waiting, 5)
        return response

    assert asyncio.run(scenario()).generation_id == 1


def test_client_that_went_away_does_not_disturb_the_others() -> None:
    world = World(initial_rebalance_delay_ms=3_000)

    async def scenario() -> JoinGroupResponse:
        gone = handle(context_of(world, 3), request())
        stays = handle(context_of(world, 3), request())
        assert isinstance(gone, asyncio.Future)
        assert isinstance(stays, asyncio.Future)
        gone.cancel()
        world.timers.advance(6_000)
        response: JoinGroupResponse = await asyncio.wait_for(stays, 5)
        return response

    assert asyncio.run(scenario()).error_code == 0
