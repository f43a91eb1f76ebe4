"""PushTelemetry, key 72: push the metrics of a client (KIP-714)."""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Bool, Bytes, Int8, Int16, Int32, Uuid


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid = field("0+")
    subscription_id: Int32 = field("0+")
    terminating: Bool = field("0+")
    compression_type: Int8 = field("0+")
    metrics: Bytes = field("0+")


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")


PUSH_TELEMETRY = Api(PushTelemetryRequest, PushTelemetryResponse)
