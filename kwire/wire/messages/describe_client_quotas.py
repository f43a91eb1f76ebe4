"""DescribeClientQuotas, key 48: the quotas of users, client ids or addresses that match a filter.

Version 1 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Float64, Int8, Int16, Int32, String


@struct()
class ComponentData:
    entity_type: String = field("0+")
    match_type: Int8 = field("0+")
    match: String | None = field("0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: Array[ComponentData] = field("0+")
    strict: Bool = field("0+")


@struct()
class EntityData:
    entity_type: String = field("0+")
    entity_name: String | None = field("0+")


@struct()
class ValueData:
    key: String = field("0+")
    value: Float64 = field("0+")


@struct()
class EntryData:
    entity: Array[EntityData] = field("0+")
    values: Array[ValueData] = field("0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    entries: Array[EntryData] | None = field("0+")


DESCRIBE_CLIENT_QUOTAS = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
