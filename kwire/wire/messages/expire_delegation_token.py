"""ExpireDelegationToken, key 40: expire a delegation token, now or later.

Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Bytes, Int16, Int32, Int64


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes = field("0+")
    expiry_time_period_ms: Int64 = field("0+")


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)


EXPIRE_DELEGATION_TOKEN = Api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse)
