"""AlterUserScramCredentials, key 51: set or remove SCRAM credentials. The client sends salted passwords."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bytes, ErrorText, Int8, Int16, Int32, String


@struct()
class ScramCredentialDeletion:
    name: String = field("0+")
    mechanism: Int8 = field("0+")


@struct()
class ScramCredentialUpsertion:
    name: String = field("0+")
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
    salt: Bytes = field("0+")
    salted_password: Bytes = field("0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: Array[ScramCredentialDeletion] = field("0+")
    upsertions: Array[ScramCredentialUpsertion] = field("0+")


@struct()
class AlterUserScramCredentialsResult:
    user: String = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[AlterUserScramCredentialsResult] = field("0+")


ALTER_USER_SCRAM_CREDENTIALS = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
