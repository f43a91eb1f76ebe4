"""ApiVersions 0-5: what is served. Derived from the list of handlers, so it cannot promise what is not there.

- Version 1 can tell of throttling. Version 2 is as 1.
- Version 3: the client names its software (KIP-511), the answer has feature levels (KIP-584): those that the server
  could have, and those agreed on with their epoch. A level of 0 is not agreed on.
- Version 4 has the features that can be at level 0; clients of version 3 do not understand them.
- Version 5: a client may name the cluster and node it means to reach; a mismatch makes it bootstrap again (KIP-1242).
"""

import re

from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kwire.wire.schema import Api

FIRST_VERSION_WITH_LEVEL_0 = 4

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    node = context.services.node
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    expects_another_cluster = request.cluster_id is not None and request.cluster_id != node.cluster_id
    if expects_another_cluster or request.node_id not in (-1, node.node_id):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
    finalized = context.services.features.finalized
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[_range(api) for api in context.services.apis.values()],
        supported_features=_supported_features(context),
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
            if level
        ],
    )


def refuse_version() -> ApiVersionsResponse:
    """The answer to a version above ours, in version 0: our own range, so that the client tries again (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(API_VERSIONS)])


def _range(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last)


def _supported_features(context: Context) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=one.name, min_version=one.first_level, max_version=one.last_level)
        for one in context.services.features.supported.values()
        if one.first_level or context.api_version >= FIRST_VERSION_WITH_LEVEL_0
    ]
