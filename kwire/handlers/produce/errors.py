"""Errors as a partition's part of a Produce response reports them."""

from collections.abc import Sequence
from typing import NamedTuple

from kwire.broker.partition import code_of
from kwire.broker.store.commit import InvalidRecords
from kwire.errors import ErrorCode, KafkaError, StreamError
from storage.errors import InvalidBatch, RecordProblem, StorageError

# Records of one batch that are named in the answer.
RECORD_ERRORS_MAX = 1000


class Failure(NamedTuple):
    """Why a batch is not stored, or not known to be, and the records at fault where they are known.

    It takes the place of the exception, whose traceback would keep the batch in memory.
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
