"""DescribeConfigs, key 32: the settings of resources.

Version 1 adds synonyms. Version 3 adds types and documentation.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ConfigResourceName, ErrorText, Int8, Int16, Int32, String


@struct()
class DescribeConfigsResource:
    resource_type: Int8 = field("0+")
    resource_name: ConfigResourceName = field("0+")
    configuration_keys: Array[String] | None = field("0+")


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: Array[DescribeConfigsResource] = field("0+")
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


@struct()
class DescribeConfigsSynonym:
    name: String = field("1+")
    value: String | None = field("1+")
    source: Int8 = field("1+")


@struct()
class DescribeConfigsResourceResult:
    name: String = field("0+")
    value: String | None = field("0+")
    read_only: Bool = field("0+")
    config_source: Int8 = field("1+", default=-1)
    is_sensitive: Bool = field("0+")
    synonyms: Array[DescribeConfigsSynonym] = field("1+")
    config_type: Int8 = field("3+", default=0)
    documentation: String | None = field("3+", default="")


@struct()
class DescribeConfigsResult:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    resource_type: Int8 = field("0+")
    resource_name: ConfigResourceName = field("0+")
    configs: Array[DescribeConfigsResourceResult] = field("0+")


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[DescribeConfigsResult] = field("0+")


DESCRIBE_CONFIGS = Api(DescribeConfigsRequest, DescribeConfigsResponse)
