"""DescribeUserScramCredentials, key 50: the mechanisms of users' SCRAM credentials, without the credentials."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int8, Int16, Int32, String


@struct()
class UserName:
    name: String = field("0+")


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: Array[UserName] | None = field("0+")


@struct()
class CredentialInfo:
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")


@struct()
class DescribeUserScramCredentialsResult:
    user: String = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    credential_infos: Array[CredentialInfo] = field("0+")


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    results: Array[DescribeUserScramCredentialsResult] = field("0+")


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
