"""SaslAuthenticate, key 36: one step of the authentication with the mechanism that SaslHandshake selected.

Version 1 adds the session lifetime. Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Bytes, ErrorText, Int16, Int64


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes = field("0+")


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    auth_bytes: Bytes = field("0+")
    session_lifetime_ms: Int64 = field("1+", default=0)


SASL_AUTHENTICATE = Api(SaslAuthenticateRequest, SaslAuthenticateResponse)
