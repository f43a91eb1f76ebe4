"""Converts errors of the transaction coordinator to codes that older clients can handle."""

from kwire.errors import ErrorCode


def fenced_error(error: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED if the client's version is older than KIP-588."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and not knows_fenced else error
