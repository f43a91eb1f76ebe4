"""ListGroups: every group of every shard, by state and by type."""

from collections.abc import Awaitable

import pytest

from kwire.broker import chunked_answers as turns
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.group.shard import GroupShard
from kwire.errors import ErrorCode
from kwire.handlers.list_groups import handle
from kwire.handlers.shared.context import Context
from kwire.wire.apis import LIST_GROUPS
from kwire.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World
from tests.support.node import in_every_version


def world_with_groups() -> World:
    world = World(initial_rebalance_delay_ms=0)
    joined(world, group_id="busy")
    for group_id in ("alone", "other"):
        world.groups.submit(CommitOffsets(group_id=group_id, offsets=[OffsetToCommit("t", 0, 1)]), lambda errors: None)
    return world


def listed(world: World, version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> ListGroupsResponse:
    def ask(context: Context, request: ListGroupsRequest) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
        return handle(context, request)

    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    return call(ask, context_of(world, version), request)


@in_every_version(LIST_GROUPS)
def test_all_groups_of_all_shards_are_listed(version: int) -> None:
    response = listed(world_with_groups(), version)
    assert response.error_code == 0
    state, kind = version >= 4, version >= 5
    assert sorted((one.group_id, one.protocol_type, one.group_state, one.group_type) for one in response.groups) == [
        ("alone", "", "Empty" * state, "classic" * kind),
        ("busy", "consumer", "Stable" * state, "classic" * kind),
        ("other", "", "Empty" * state, "classic" * kind),
    ]


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (("Stable",), (), ["busy"]),
        (("sTABLE ", "empty"), (), ["alone", "busy", "other"]),
        (("Empty",), ("Classic",), ["alone", "other"]),
        (("NoSuchState",), (), []),
        ((), ("consumer",), []),
        ((), ("no such type",), []),
        ((), ("consumer", "CLASSIC"), ["alone", "busy", "other"]),
    ],
)
def test_states_and_types_are_filters_without_regard_to_case(
    states: tuple[str, ...], types: tuple[str, ...], expected: list[str]
) -> None:
    response = listed(world_with_groups(), 5, states, types)
    assert sorted(one.group_id for one in response.groups) == expected


def test_shards_that_nobody_asked_for_are_loaded() -> None:
    world = world_with_groups()
    world.restart()
    assert sorted(one.group_id for one in listed(world, 5).groups) == ["alone", "busy", "other"]


def test_half_a_list_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_groups()
    world.restart()
    apply = GroupShard.apply

    def slow(shard: GroupShard, key: bytes, value: bytes | None) -> None:
        world.clock.advance(10)
        apply(shard, key, value)

    monkeypatch.setattr(GroupShard, "apply", slow)
    response = listed(world, 5)
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    world.timers.advance(100)
    assert len(listed(world, 5).groups) == 3


def test_coordinator_that_is_gone_says_so() -> None:
    world = world_with_groups()
    world.groups.close()
    assert listed(world, 5).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_every_version(LIST_GROUPS)
def test_long_list_is_the_same_when_it_is_made_in_turns(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    world = world_with_groups()
    at_once = listed(world, version)
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 1)
    assert listed(world, version) == at_once
