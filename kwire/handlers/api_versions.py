"""ApiVersions 0-5: the APIs and versions that the server supports, derived from the list of handlers.

- Version 1 adds the throttle time. Version 2 is the same as version 1.
- In version 3 the client sends its software name and version (KIP-511), and the response has feature levels (KIP-584):
  the supported ones, and the finalized ones with their epoch. A feature at level 0 is not listed as finalized.
- Version 4 also returns features that can be at level 0. Clients of version 3 do not support these.
- In version 5 a client may send the cluster id and node id that it intends to reach. If one of them does not match this
  node, the error is REBOOTSTRAP_REQUIRED (KIP-1242).
"""

import re

from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
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
    """Return the response to an ApiVersions request of an unsupported version (KIP-511).

    It is encoded in version 0 and contains the supported versions of ApiVersions.
    """
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(API_VERSIONS)])


def _range(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last)


def _supported_features(context: Context) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=one.name, min_version=one.first_level, max_version=one.last_level)
        for one in context.services.features.supported.values()
        if one.first_level or context.api_version >= FIRST_VERSION_WITH_LEVEL_0
    ]
