"""AlterClientQuotas, key 49: set or remove quotas.

Version 1 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Float64, Int16, Int32, String


@struct()
class EntityData:
    entity_type: String = field("0+")
    entity_name: String | None = field("0+")


@struct()
class OpData:
    key: String = field("0+")
    value: Float64 = field("0+")
    remove: Bool = field("0+")


@struct()
class EntryData:
    entity: Array[EntityData] = field("0+")
    ops: Array[OpData] = field("0+")


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: Array[EntryData] = field("0+")
    validate_only: Bool = field("0+")


@struct()
class AlteredEntryData:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    entity: Array[EntityData] = field("0+")


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    entries: Array[AlteredEntryData] = field("0+")


ALTER_CLIENT_QUOTAS = Api(AlterClientQuotasRequest, AlterClientQuotasResponse)
