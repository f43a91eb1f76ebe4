"""The errors in partition responses of Produce."""

from collections.abc import Sequence
from typing import NamedTuple

from kwire.broker.partition import code_of
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.streams.event_store.pending_commit import InvalidRecords
from storage.errors import InvalidBatch, RecordProblem, StorageError

# Maximum number of invalid records of one batch that the response lists.
RECORD_ERRORS_MAX = 1000


class Failure(NamedTuple):
    """The error of a batch that was not stored, or that may or may not be stored, and the known invalid records.

    An append stores this object instead of the exception, whose traceback would keep the batch in memory.
    """

    code: ErrorCode
    message: str | None
    problems: Sequence[RecordProblem] = ()


def failure_of(error: KafkaError | StorageError | StreamError) -> Failure:
    problems = error.problems[:RECORD_ERRORS_MAX] if isinstance(error, InvalidBatch | InvalidRecords) else ()
    if isinstance(error, StorageError):
        return Failure(code_of(error), str(error), problems)
    if isinstance(error, KafkaError):
        return Failure(error.code, error.message, problems)
    return Failure(ErrorCode.INVALID_RECORD, error.message)
