"""Errors of the transaction coordinator in words that older clients know."""

from kwire.errors import ErrorCode


def fenced_error(error: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED came late (KIP-588); clients before that know the error of a wrong epoch and act alike on it."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and not knows_fenced else error
