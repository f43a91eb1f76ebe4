"""SaslHandshake, key 17: select the SASL mechanism.

After a handshake of version 1 the client authenticates with SaslAuthenticate requests, after a handshake of version 0
with raw bytes. No version is flexible, because old clients negotiate flexible versions incorrectly (KAFKA-9577).
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Array, Int16, String


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: String = field("0+")


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: Int16 = field("0+")
    mechanisms: Array[String] = field("0+")


SASL_HANDSHAKE = Api(SaslHandshakeRequest, SaslHandshakeResponse)
