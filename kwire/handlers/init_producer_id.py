"""InitProducerId 0-5: an identity for an idempotent producer.

- Without a transactional id every call gets a fresh id with epoch 0, whatever id it had before, as in Kafka.
- Transactional ids are refused until transactions are served.
"""

from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_epoch=-1)
    producer_id = await context.services.producer_ids.take()
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
