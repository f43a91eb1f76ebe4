"""UnregisterController, key 94: remove a controller permanently from the cluster."""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import ErrorText, Int16, Int32


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: Int32 = field("0+")


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


UNREGISTER_CONTROLLER = Api(UnregisterControllerRequest, UnregisterControllerResponse)
