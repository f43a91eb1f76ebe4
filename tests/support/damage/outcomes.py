"""What may come of a damaged file."""

import enum


class Outcome(enum.StrEnum):
    """Anything else is a defect, and is told as a :class:`Silent` with what was seen."""

    WHOLE = "whole"
    NAMED = "named"
    # As NAMED, and appends are refused with KAFKA_STORAGE_ERROR.
    READ_ONLY = "read_only"
    REFUSED = "refused"
    # The file does not exist after such a stop.
    NONE = "none"


class Silent(AssertionError):
    """Something is lost or wrong, and neither an answer nor the server's log says so."""
