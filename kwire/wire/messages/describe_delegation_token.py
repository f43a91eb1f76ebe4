"""DescribeDelegationToken, key 41: the delegation tokens of the given owners; null requests all tokens.

Version 2 is flexible. Version 3 adds the requester of the token.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bytes, Int16, Int32, Int64, String


@struct()
class DescribeDelegationTokenOwner:
    principal_type: String = field("0+")
    principal_name: String = field("0+")


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: Array[DescribeDelegationTokenOwner] | None = field("0+")


@struct()
class DescribedDelegationTokenRenewer:
    principal_type: String = field("0+")
    principal_name: String = field("0+")


@struct()
class DescribedDelegationToken:
    principal_type: String = field("0+")
    principal_name: String = field("0+")
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64 = field("0+")
    expiry_timestamp: Int64 = field("0+")
    max_timestamp: Int64 = field("0+")
    token_id: String = field("0+")
    hmac: Bytes = field("0+")
    renewers: Array[DescribedDelegationTokenRenewer] = field("0+")


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = field("0+")
    tokens: Array[DescribedDelegationToken] = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)


DESCRIBE_DELEGATION_TOKEN = Api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
