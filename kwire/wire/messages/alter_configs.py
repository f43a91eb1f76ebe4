"""AlterConfigs, key 33: replace all settings of a resource. IncrementalAlterConfigs supersedes this API.

Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ConfigResourceName, ErrorText, Int8, Int16, Int32, String


@struct()
class AlterableConfig:
    name: String = field("0+")
    value: String | None = field("0+")


@struct()
class AlterConfigsResource:
    resource_type: Int8 = field("0+")
    resource_name: ConfigResourceName = field("0+")
    configs: Array[AlterableConfig] = field("0+")


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: Array[AlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")


@struct()
class AlterConfigsResourceResponse:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: ConfigResourceName = field("0+")


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    responses: Array[AlterConfigsResourceResponse] = field("0+")


ALTER_CONFIGS = Api(AlterConfigsRequest, AlterConfigsResponse)
