"""SaslHandshake, key 17: choose how to authenticate.

1: the exchange itself follows as SaslAuthenticate requests; after 0 it follows as bare bytes. Never flexible, and not
likely to be: old clients negotiate it wrongly (KAFKA-9577).
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
