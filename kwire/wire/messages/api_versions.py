"""ApiVersions, key 18: the APIs and versions that the server supports. It is the first request on a connection.

Version 3 adds the client software and features. Version 4 adds features that start at level 0. In version 5 the client
may name the cluster and node that it expects. An unsupported version is answered in version 0 with error 35 (KIP-511).
The response header never has tagged fields.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Int16, Int32, Int64, String


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: String = field("3+", default="")
    client_software_version: String = field("3+", default="")
    cluster_id: String | None = field("5+", default=None)
    node_id: Int32 = field("5+", default=-1)


@struct()
class ApiVersion:
    api_key: Int16 = field("0+")
    min_version: Int16 = field("0+")
    max_version: Int16 = field("0+")


@struct()
class SupportedFeatureKey:
    name: String = field("3+", default="")
    min_version: Int16 = field("3+", default=0)
    max_version: Int16 = field("3+", default=0)


@struct()
class FinalizedFeatureKey:
    name: String = field("3+", default="")
    max_version_level: Int16 = field("3+", default=0)
    min_version_level: Int16 = field("3+", default=0)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16 = field("0+")
    api_keys: Array[ApiVersion] = field("0+")
    throttle_time_ms: Int32 = field("1+", default=0)
    supported_features: Array[SupportedFeatureKey] = field("3+", tag=0, default=list)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1)
    finalized_features: Array[FinalizedFeatureKey] = field("3+", tag=2, default=list)
    zk_migration_ready: Bool = field("3+", tag=3, default=False)


API_VERSIONS = Api(ApiVersionsRequest, ApiVersionsResponse)
