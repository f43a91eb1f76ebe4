"""InitProducerId 0-5: an identity for an idempotent producer.

- Without a transactional id every call gets a fresh id with epoch 0, whatever id it had before, as in Kafka.
- Transactional ids are refused until transactions are served.
- While no block of ids can be reserved, the answer is COORDINATOR_LOAD_IN_PROGRESS, which every producer retries.
- 2 is flexible; from 3 on a producer says which id and epoch it had; 4 and 5 have further errors of transactions.
"""

import logging

from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.metastore import Conflict
from kwire.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.errors import StorageError

log = logging.getLogger("kwire.handlers")


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_epoch=-1)
    try:
        producer_id = await context.services.producer_ids.take()
    except (StorageError, Conflict):
        log.exception("no producer id can be given")
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
