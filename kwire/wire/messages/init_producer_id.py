"""InitProducerId, key 22: get the producer id and epoch of an idempotent or transactional producer.

Version 3 adds the previous producer id and epoch of the producer. Version 6 (two-phase commit) is unstable in Kafka and
not supported.
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Int16, Int32, Int64, TransactionalId


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: TransactionalId | None = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+")


INIT_PRODUCER_ID = Api(InitProducerIdRequest, InitProducerIdResponse)
