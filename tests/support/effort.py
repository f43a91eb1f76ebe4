"""How often random tests repeat: KWIRE_TEST_EFFORT is `quick` (the default, what CI runs), `full` or `soak`.

The effort changes counts only. Kept seeds, exhaustive enumerations and planted mistakes run at every effort.
"""

import enum
import os

VARIABLE = "KWIRE_TEST_EFFORT"
# `soak` repeats everything this many times as often as `full`.
SOAK_FACTOR = 10
# `quick` draws one in this many of the random examples that `full` draws, but not fewer than EXAMPLES_MIN.
QUICK_DIVISOR = 4
EXAMPLES_MIN = 10


class Effort(enum.StrEnum):
    """The values of KWIRE_TEST_EFFORT."""

    QUICK = "quick"
    FULL = "full"
    SOAK = "soak"


def chosen_effort() -> Effort:
    """The effort of this run; an unknown name raises ValueError."""
    name = os.environ.get(VARIABLE) or Effort.QUICK
    try:
        return Effort(name)
    except ValueError:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(Effort)}, got {name!r}") from None


def repetitions(*, quick: int, full: int) -> int:
    """How often a random test repeats at this effort."""
    match chosen_effort():
        case Effort.QUICK:
            return quick
        case Effort.FULL:
            return full
        case Effort.SOAK:
            return full * SOAK_FACTOR


def examples(full: int) -> int:
    """How many examples a property test draws at this effort, where `full` draws `full` of them."""
    return repetitions(quick=max(full // QUICK_DIVISOR, min(full, EXAMPLES_MIN)), full=full)
