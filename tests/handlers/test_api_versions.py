"""ApiVersions: what is promised is what is served."""

from typing import Any

import pytest
from msgspec.structs import replace

from kwire.broker.admin.features import Feature, Features, FeatureUpdate, UpgradeType
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.api_versions import refuse_version
from kwire.wire.apis import API_VERSIONS
from kwire.wire.messages.api_versions import ApiVersionsRequest
from tests.support.node import CLUSTER_ID, NODE_ID, QuietNode, in_every_version, in_loop, received

SINCE_3 = [version for version in API_VERSIONS.versions if version >= 3]
SINCE_5 = [version for version in API_VERSIONS.versions if version >= 5]
PRODUCE, FETCH, API_VERSIONS_KEY = 0, 1, 18


def client(name: str = "test-client", version: str = "1.0.0", **more: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version, **more)


@in_every_version(API_VERSIONS)
@in_loop
async def test_every_handler_is_listed_with_its_versions(node: QuietNode, version: int) -> None:
    answer = await node.ask(client(), version)
    assert answer.error_code == ErrorCode.NONE
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert listed == {key: (handler.api.versions.first, handler.api.versions.last) for key, handler in HANDLERS.items()}
    assert len(answer.api_keys) == len(listed)
    # Old librdkafka takes a broker that does not list Produce 0 for one without record headers.
    assert listed[PRODUCE] == (0, 13)
    assert listed[FETCH] == (4, 18)
    assert listed[API_VERSIONS_KEY] == (0, 5)


@pytest.mark.parametrize("version", SINCE_3)
@in_loop
async def test_client_software_needs_a_proper_name(node: QuietNode, version: int) -> None:
    bad = ["", "a b", "-a", "a-", ".a", "a.", "ä", "a\n", "a/b"]
    for request in [*(client(name=one) for one in bad), *(client(version=one) for one in bad)]:
        answer = await node.ask(request, version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.api_keys == []


@pytest.mark.parametrize("version", SINCE_3)
@in_loop
async def test_usual_names_are_proper(node: QuietNode, version: int) -> None:
    for good in ("a", "9", "apache-kafka-java", "v1.2-3.rc0"):
        assert (await node.ask(client(good, good), version)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
@in_loop
async def test_before_version_3_nobody_says_who_it_is(node: QuietNode, version: int) -> None:
    assert (await node.ask(ApiVersionsRequest(), version)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", SINCE_5)
@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (CLUSTER_ID, NODE_ID, ErrorCode.NONE),
        (CLUSTER_ID, -1, ErrorCode.NONE),
        (None, NODE_ID, ErrorCode.NONE),
        ("another", -1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", -1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, NODE_ID + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 0, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
@in_loop
async def test_client_that_means_another_node_must_bootstrap_again(
    node: QuietNode, version: int, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    answer = await node.ask(client(cluster_id=cluster_id, node_id=node_id), version)
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code is ErrorCode.NONE)


@pytest.mark.parametrize("version", SINCE_3)
@in_loop
async def test_features_are_told_with_their_levels_and_epoch(node: QuietNode, version: int) -> None:
    table = (Feature("old", 1, 4), Feature("young", 0, 2))
    features = Features(node.metastore, (), table)
    node.services = replace(node.services, features=features)
    epochs = []
    for level in (2, 0):
        await features.update({"young": FeatureUpdate(level, UpgradeType.SAFE_DOWNGRADE)}, validate_only=False)
        answer = await node.ask(client(), version)
        supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        # Clients of version 3 fail at a range that begins at 0.
        assert supported == ({"old": (1, 4), "young": (0, 2)} if version >= 4 else {"old": (1, 4)})
        finalized = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
        assert finalized == ({"old": (4, 4), "young": (level, level)} if level else {"old": (4, 4)})
        epochs.append(answer.finalized_features_epoch)
    assert 0 <= epochs[0] < epochs[1]


@pytest.mark.parametrize("version", [version for version in API_VERSIONS.versions if version < 3])
@in_loop
async def test_older_versions_know_no_features(node: QuietNode, version: int) -> None:
    answer = await node.ask(client(), version)
    assert (answer.supported_features, answer.finalized_features, answer.finalized_features_epoch) == ([], [], -1)


def test_refusal_of_a_newer_version_tells_our_range_in_version_0() -> None:
    answer = received(refuse_version(), 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (ours,) = answer.api_keys
    assert (ours.api_key, ours.min_version, ours.max_version) == (API_VERSIONS_KEY, 0, 5)
