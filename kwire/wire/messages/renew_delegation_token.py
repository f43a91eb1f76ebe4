"""RenewDelegationToken, key 39: renew a delegation token.

Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Bytes, Int16, Int32, Int64


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes = field("0+")
    renew_period_ms: Int64 = field("0+")


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)


RENEW_DELEGATION_TOKEN = Api(RenewDelegationTokenRequest, RenewDelegationTokenResponse)
