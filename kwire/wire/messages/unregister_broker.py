"""UnregisterBroker, key 64: remove a broker permanently from the cluster."""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import ErrorText, Int16, Int32


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32 = field("0+")


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


UNREGISTER_BROKER = Api(UnregisterBrokerRequest, UnregisterBrokerResponse)
