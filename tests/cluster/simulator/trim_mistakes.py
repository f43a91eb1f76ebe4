"""Mistakes that are planted in the trimming of streams."""

from typing import Final

from kwire.cluster.core.reader import reader
from kwire.cluster.core.store import replica
from kwire.cluster.master import state
from tests.cluster.simulator.mistakes import NO_BIAS, Mistake

TRIM_MISTAKES: Final = (
    Mistake(
        "T1",
        "a store trims beyond the start of the stream",
        replica.Replica,
        "trim",
        "min(first, self.closed_end)",
        "min(first + 1, self.closed_end)",
        seed=0,
        bias=NO_BIAS,
    ),
    Mistake(
        "T2",
        "the master counts reports of an earlier start",
        state.SegmentEntry,
        "from_start",
        "one.start == start",
        "True",
        seed=8,
        bias=NO_BIAS,
    ),
    Mistake(
        "T3",
        "a reader goes on at the start without a gap",
        reader.Reader,
        "_skip_to",
        "self.deliveries.append(Trimmed(self.position, start))",
        "pass",
        seed=8,
        bias=NO_BIAS,
    ),
)
