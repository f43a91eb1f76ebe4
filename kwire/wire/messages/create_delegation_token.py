"""CreateDelegationToken, key 38: create a delegation token.

Version 2 is flexible. Version 3 allows an owner other than the requester, and the response names the requester.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bytes, Int16, Int32, Int64, String


@struct()
class CreatableRenewers:
    principal_type: String = field("0+")
    principal_name: String = field("0+")


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: String | None = field("3+", default="")
    owner_principal_name: String | None = field("3+", default="")
    renewers: Array[CreatableRenewers] = field("0+")
    max_lifetime_ms: Int64 = field("0+")


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = field("0+")
    principal_type: String = field("0+")
    principal_name: String = field("0+")
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    max_timestamp_ms: Int64 = field("0+")
    token_id: String = field("0+")
    hmac: Bytes = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)


CREATE_DELEGATION_TOKEN = Api(CreateDelegationTokenRequest, CreateDelegationTokenResponse)
