"""The error part of a partition's Produce answer: code, message and, where they are known, the records at fault."""

from kwire.broker.partition import code_of
from kwire.broker.store.commit import InvalidRecords
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from storage.errors import InvalidBatch, StorageError

# Records of one batch that are named in the answer.
RECORD_ERRORS_MAX = 1000


def refuse(answer: PartitionProduceResponse, error: KafkaError | StorageError | StreamError) -> None:
    """Make `answer` say that the batch is not stored, or not known to be, and why."""
    answer.base_offset = -1
    if isinstance(error, StorageError):
        answer.error_code, answer.error_message = code_of(error), str(error)
    elif isinstance(error, KafkaError):
        answer.error_code, answer.error_message = error.code, error.message
    else:
        answer.error_code, answer.error_message = ErrorCode.INVALID_RECORD, error.message
    if isinstance(error, InvalidBatch | InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
            for number, message in error.problems[:RECORD_ERRORS_MAX]
        ]


def refused(index: int, error: KafkaError | StorageError) -> PartitionProduceResponse:
    """The answer for a partition whose batch is refused."""
    answer = PartitionProduceResponse(index=index, error_code=0, base_offset=-1)
    refuse(answer, error)
    return answer
