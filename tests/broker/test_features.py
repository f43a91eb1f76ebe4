"""Feature levels: finalized levels are durable, and only supported levels are accepted."""

import asyncio
import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from kwire.broker.admin import features
from kwire.broker.admin.features import FEATURES, Feature, Features, FeatureUpdate, UpgradeType
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop

TABLE = (Feature("fixed", 5, 5), Feature("open", 0, 3), Feature("apart", 1, 2, api_keys=(68, 69)))
UP, DOWN, FORCED = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def made(node: QuietNode, table: tuple[Feature, ...] = TABLE, served: tuple[int, ...] = ()) -> Features:
    return Features(node.metastore, served, table)


def levels(features: Features) -> Mapping[str, int]:
    return features.finalized.levels


async def refused(features: Features, **asked: tuple[int, int]) -> KafkaError:
    before = features.finalized
    with pytest.raises(KafkaError) as caught:
        await features.update({name: FeatureUpdate(*one) for name, one in asked.items()}, validate_only=False)
    assert features.finalized == before
    return caught.value


@in_loop
async def test_new_cluster_has_the_last_level_of_every_feature(node: QuietNode) -> None:
    features = made(node)
    assert levels(features) == {"fixed": 5, "open": 3}
    await features.register()
    assert features.finalized.epoch == node.metastore.revision == 1
    assert levels(features) == {"fixed": 5, "open": 3}


@in_loop
async def test_feature_counts_only_when_all_its_apis_are_served(node: QuietNode) -> None:
    for served, counts in (((), False), ((68,), False), ((68, 69), True), ((1, 68, 69), True)):
        features = made(node, served=served)
        assert ("apart" in features.supported) == counts
        assert features.level("apart") == (2 if counts else 0)


@in_loop
async def test_update_is_there_after_a_restart_and_has_an_epoch_of_its_own(node: QuietNode) -> None:
    features = made(node)
    await features.register()
    epochs = [features.finalized.epoch]
    for level, kind in ((1, DOWN), (2, UP), (0, FORCED)):
        await features.update({"open": FeatureUpdate(level, kind)}, validate_only=False)
        node.restart()
        features = made(node)
        await features.register()
        assert levels(features) == {"fixed": 5, "open": level}
        epochs.append(features.finalized.epoch)
    assert epochs == sorted(set(epochs))


@in_loop
async def test_what_is_so_already_and_what_is_only_validated_changes_nothing(node: QuietNode) -> None:
    features = made(node)
    await features.register()
    revision = node.metastore.revision
    for kind in UpgradeType:
        await features.update({"open": FeatureUpdate(3, kind), "fixed": FeatureUpdate(5, kind)}, validate_only=False)
    await features.update({}, validate_only=False)
    await features.update({"open": FeatureUpdate(1, DOWN)}, validate_only=True)
    assert levels(features) == {"fixed": 5, "open": 3}
    assert node.metastore.revision == revision


@in_loop
async def test_levels_that_cannot_be_are_refused_and_nothing_of_the_request_is_done(node: QuietNode) -> None:
    features = made(node)
    await features.update({"open": FeatureUpdate(2, DOWN)}, validate_only=False)
    cases = [("open", 4, UP), ("open", -1, DOWN), ("open", 1, UP), ("open", 3, DOWN), ("open", 3, FORCED)]
    cases += [("fixed", 4, DOWN), ("fixed", 4, FORCED), ("fixed", 6, UP), ("fixed", 0, DOWN)]
    cases += [("apart", 1, UP), ("no-such", 1, UP), ("no-such", 0, DOWN), ("", 0, UP)]
    for name, level, kind in cases:
        error = await refused(features, **{"open": (1, DOWN), name: (level, kind)})
        assert error.code == ErrorCode.INVALID_UPDATE_VERSION
        assert str(level) in str(error)
    for unheard_of in (0, 4, -1):
        assert (await refused(features, open=(2, unheard_of))).code == ErrorCode.INVALID_UPDATE_VERSION


@in_loop
async def test_another_version_of_the_server_gets_levels_it_has_and_a_new_epoch(node: QuietNode) -> None:
    before = made(node)
    await before.register()
    await before.update({"open": FeatureUpdate(1, DOWN)}, validate_only=False)
    node.restart()
    after = made(node, (Feature("fixed", 6, 6), Feature("open", 0, 4), Feature("new", 0, 2)))
    epoch = after.finalized.epoch
    await after.register()
    assert levels(after) == {"fixed": 6, "open": 1, "new": 2}
    assert after.finalized.epoch > epoch
    node.restart()
    back = made(node)
    epoch = back.finalized.epoch
    await back.register()
    assert levels(back) == {"fixed": 5, "open": 1}
    assert back.finalized.epoch > epoch


@in_loop
async def test_two_who_update_at_the_same_time_are_both_judged_by_what_is(node: QuietNode) -> None:
    features = made(node)
    await features.register()
    results = await asyncio.gather(
        features.update({"open": FeatureUpdate(1, DOWN)}, validate_only=False),
        features.update({"open": FeatureUpdate(2, DOWN)}, validate_only=False),
        return_exceptions=True,
    )
    # The second would raise what the first has lowered.
    assert results[0] is None
    assert isinstance(results[1], KafkaError)
    assert levels(features)["open"] == 1


@in_loop
async def test_others_who_never_stop_are_not_waited_for_for_ever(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    async def commit(changes: list[Change]) -> int:
        nonlocal attempts
        attempts += 1
        raise Conflict(features.KEY)

    monkeypatch.setattr(node.metastore, "commit", commit)
    assert (await refused(made(node), open=(1, DOWN))).code == ErrorCode.REQUEST_TIMED_OUT
    assert attempts == features.UPDATE_ATTEMPTS_MAX


@in_loop
async def test_full_disk_leaves_the_levels_as_they_were(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        features = made(node)
        await features.register()
        files.break_down("pwrite", errno.ENOSPC)
        assert (await refused(features, open=(1, DOWN))).code == ErrorCode.KAFKA_STORAGE_ERROR


def test_table_has_every_feature_once_and_with_levels() -> None:
    assert len({one.name for one in FEATURES}) == len(FEATURES)
    for one in FEATURES:
        assert 0 <= one.first_level <= one.last_level
        assert one.last_level > 0
