"""Maps errors of a partition's log to Kafka's error codes."""

from kwire.errors import ErrorCode, KafkaError
from storage.errors import (
    BatchTooLarge,
    BudgetExceeded,
    CoordinatorFenced,
    CorruptBatch,
    InvalidBatch,
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    LogClosed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    QuarantinedRange,
    StorageError,
    UnsupportedCompression,
)

# An error that is not listed has the code of its nearest listed base class.
_CODES: dict[type, ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    InvalidBatch: ErrorCode.INVALID_RECORD,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    LogClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    QuarantinedRange: ErrorCode.CORRUPT_MESSAGE,
    BudgetExceeded: ErrorCode.MESSAGE_TOO_LARGE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_of(error: StorageError) -> ErrorCode:
    """Return the Kafka error code for a storage error. The code for a disk failure is retriable."""
    return next(_CODES[family] for family in type(error).__mro__ if family in _CODES)


def batch_too_large(size_bytes: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size_bytes} bytes, max.message.bytes is {max_message_bytes}"
    )


def topic_is_being_deleted() -> KafkaError:
    # With this code, producers refresh their metadata and retry. By then the topic is deleted, or its deletion has
    # failed.
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic is being deleted")


def log_not_writable() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log accepts no more records")
