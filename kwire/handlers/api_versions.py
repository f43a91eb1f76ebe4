"""ApiVersions 0-5: what is served. Derived from the list of handlers, so it cannot promise what is not there.

Version 5: a client may name the cluster and node it means to reach; a mismatch makes it bootstrap again (KIP-1242).
"""

import re

from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kwire.wire.schema import Api

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
    return ApiVersionsResponse(error_code=0, api_keys=[_range(api) for api in context.services.apis.values()])


def refuse_version() -> ApiVersionsResponse:
    """The answer to a version above ours, in version 0: our own range, so that the client tries again (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(API_VERSIONS)])


def _range(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last)
