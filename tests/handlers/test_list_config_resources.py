"""ListConfigResources: which resources have settings."""

import inspect

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.configs import BROKER, DELETE, GROUP, HERE, LOGGER, METRICS, SET, TOPIC, edit
from tests.support.node import QuietNode, in_loop, received


async def listed(node: QuietNode, version: int, *kinds: int) -> list[tuple[int, str]]:
    answer = await node.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    assert answer.error_code == 0
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


async def configure(node: QuietNode) -> None:
    await node.create("t")
    assert await edit(node, GROUP, "g", (SET, "share.isolation.level", "read_committed")) == (0, None)
    assert await edit(node, METRICS, "s", (SET, "metrics", "*")) == (0, None)
    assert await edit(node, METRICS, "s2", (SET, "metrics", "")) == (0, None)


@in_loop
async def test_version_0_names_client_metrics_only(node: QuietNode) -> None:
    assert await listed(node, 0) == []
    await configure(node)
    assert await listed(node, 0) == [(METRICS, "s"), (METRICS, "s2")]
    assert await edit(node, METRICS, "s", (DELETE, "metrics", None)) == (0, None)
    assert await listed(node, 0) == [(METRICS, "s2")]
    node.restart()
    assert await listed(node, 0) == [(METRICS, "s2")]


@in_loop
async def test_version_1_names_all_kinds_or_those_asked_for(node: QuietNode) -> None:
    await configure(node)
    everything = [(GROUP, "g"), (METRICS, "s"), (METRICS, "s2"), (LOGGER, HERE), (BROKER, HERE), (TOPIC, "t")]
    assert await listed(node, 1) == everything
    for kind in (GROUP, METRICS, LOGGER, BROKER, TOPIC):
        assert await listed(node, 1, kind, kind) == [one for one in everything if one[0] == kind]
    assert await listed(node, 1, BROKER, LOGGER) == [(LOGGER, HERE), (BROKER, HERE)]


@pytest.mark.parametrize("kind", [-1, 0, 1, 3, 99])
@in_loop
async def test_unknown_kind_is_answered_with_unsupported_version(node: QuietNode, kind: int) -> None:
    answer = await node.ask(ListConfigResourcesRequest(resource_types=[METRICS, kind]), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@in_loop
async def test_many_topics_are_named_in_turns(node: QuietNode) -> None:
    for index in range(600):
        await node.create(f"t{index}")
    answer = node.start(ListConfigResourcesRequest(resource_types=[TOPIC]), 1)
    assert inspect.isawaitable(answer)
    names = [one.resource_name for one in received(await answer, 1).config_resources]
    assert sorted(names) == sorted(f"t{index}" for index in range(600))
