"""UpdateFeatures: levels are set together or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kwire.broker.admin.features import Feature, Features, UpgradeType
from kwire.errors import ErrorCode
from kwire.wire.apis import UPDATE_FEATURES
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.node import QuietNode, in_every_version, in_loop

TABLE = (Feature("fixed", 5, 5), Feature("open", 0, 3), Feature("other", 1, 2))
UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE
BEFORE = {"fixed": 5, "open": 3, "other": 2}


def invented(node: QuietNode) -> QuietNode:
    node.services = replace(node.services, features=Features(node.metastore, (), TABLE))
    return node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    """A node whose features are invented, so that there is something to set."""
    with QuietNode(tmp_path) as made:
        yield invented(made)


def update(name: str, level: int, kind: int) -> FeatureUpdateKey:
    # Version 0 has another word for it.
    return FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UpgradeType.UPGRADE
    )


async def ask(
    node: QuietNode, version: int, *updates: FeatureUpdateKey, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    answer: UpdateFeaturesResponse = await node.ask(request, version)
    return answer


async def levels(node: QuietNode) -> dict[str, int]:
    """As a client sees them; one at level 0 is not told."""
    answer = await node.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_levels_are_set_and_are_there_after_a_restart(node: QuietNode, version: int) -> None:
    assert await levels(node) == BEFORE
    answer = await ask(node, version, update("open", 1, DOWN), update("other", 1, DOWN), update("fixed", 5, UP))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    names = ["open", "other", "fixed"] if version < 2 else []
    assert [(one.feature, one.error_code) for one in answer.results] == [(name, ErrorCode.NONE) for name in names]
    node.restart()
    invented(node)
    assert await levels(node) == {"fixed": 5, "open": 1, "other": 1}
    assert (await ask(node, version, update("open", 2, UP))).error_code == ErrorCode.NONE
    assert (await ask(node, version, update("open", 0, DOWN))).error_code == ErrorCode.NONE
    assert await levels(node) == {"fixed": 5, "other": 1}


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_one_bad_level_fails_the_whole_request(node: QuietNode, version: int) -> None:
    for bad in (
        update("open", 4, UP),
        update("open", -1, DOWN),
        update("open", 1, UP),
        update("fixed", 6, DOWN),
        update("no-such", 1, UP),
        update("metadata.version", 33, UP),
    ):
        answer = await ask(node, version, update("other", 1, DOWN), bad)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message is not None
        assert bad.feature in answer.error_message
        assert answer.results == []
        assert await levels(node) == BEFORE


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_kind_of_change_must_fit_the_level(node: QuietNode, version: int) -> None:
    assert (await ask(node, version, update("open", 1, DOWN))).error_code == ErrorCode.NONE
    assert (await ask(node, version, update("open", 2, DOWN))).error_code == ErrorCode.INVALID_UPDATE_VERSION
    for unheard_of in (0, 4, -1) if version else ():
        answer = await ask(node, version, update("open", 1, unheard_of))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (await levels(node))["open"] == 1


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_validation_changes_nothing(node: QuietNode, version: int) -> None:
    if version < 1:
        return
    good = await ask(node, version, update("open", 1, DOWN), validate_only=True)
    bad = await ask(node, version, update("open", 9, UP), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)
    assert await levels(node) == BEFORE


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_name_that_comes_twice_counts_as_it_stood_last(node: QuietNode, version: int) -> None:
    answer = await ask(node, version, update("open", 9, UP), update("open", 1, DOWN))
    assert answer.error_code == ErrorCode.NONE
    assert (await levels(node))["open"] == 1


@in_every_version(UPDATE_FEATURES)
@in_loop
async def test_metadata_version_of_this_server_is_fixed(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path / "real") as node:
        level = (await levels(node))["metadata.version"]
        for asked, kind, code in (
            (level, UP, ErrorCode.NONE),
            (level - 1, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
            (level - 1, UpgradeType.UNSAFE_DOWNGRADE, ErrorCode.INVALID_UPDATE_VERSION),
            (level + 1, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ):
            assert (await ask(node, version, update("metadata.version", asked, kind))).error_code == code
        assert (await levels(node))["metadata.version"] == level
