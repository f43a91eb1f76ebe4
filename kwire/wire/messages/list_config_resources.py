"""ListConfigResources, key 74: names of resources that have settings.

Version 0 lists client metrics subscriptions only. Version 1 lists the requested resource types; an empty list of types
requests all of them (KIP-1142).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ConfigResourceName, Int8, Int16, Int32


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: Array[Int8] = field("1+", default=list)


@struct()
class ConfigResource:
    resource_name: ConfigResourceName = field("0+")
    resource_type: Int8 = field("1+", default=16)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    config_resources: Array[ConfigResource] = field("0+")


LIST_CONFIG_RESOURCES = Api(ListConfigResourcesRequest, ListConfigResourcesResponse)
