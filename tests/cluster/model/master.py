"""The master: hands out epochs and keeps the list of segments, one compare-and-set at a time."""

from tests.cluster.model.checks import Violation
from tests.cluster.model.mistakes import Mistake

OPEN, SEALING, SEALED = range(3)
UNSEALED_MAX = 2


class Segment:
    """The master's record of a segment."""

    __slots__ = ("copy_set", "end", "end_epoch", "id", "state")

    def __init__(self, segment_id: int, copy_set: tuple[int, ...]) -> None:
        self.id = segment_id
        self.copy_set = copy_set
        self.state = OPEN
        self.end = -1
        self.end_epoch = 0


class Master:
    """Epochs and segments. Every change is atomic; a schedule delays the leader between its decision and the change."""

    __slots__ = ("elections", "epoch", "mistake", "segments")

    def __init__(self, mistake: Mistake | None) -> None:
        self.mistake = mistake
        self.epoch = 0
        self.elections = 0
        self.segments: list[Segment] = []

    def elect(self) -> int:
        self.elections += 1
        if self.mistake is not Mistake.EPOCH_TWICE or self.elections % 2:
            self.epoch += 1
        return self.epoch

    def _is_current(self, epoch: int) -> bool:
        return epoch == self.epoch or self.mistake is Mistake.NO_CAS_GUARD

    def unsealed(self) -> int:
        return sum(segment.state != SEALED for segment in self.segments)

    def mark_sealing(self, epoch: int, segment: Segment) -> bool:
        if not self._is_current(epoch) or segment.state == SEALED:
            return False
        segment.state = SEALING
        return True

    def close(self, epoch: int, segment_id: int, end: int) -> bool:
        if not self._is_current(epoch):
            return False
        segment = self.segments[segment_id]
        if segment.state == SEALED and (segment.end, segment.end_epoch) != (end, epoch):
            raise Violation("I18", f"segment {segment_id}: closed by epoch {segment.end_epoch}, again by {epoch}")
        segment.state, segment.end, segment.end_epoch = SEALED, end, epoch
        return True

    def create(self, epoch: int, segment_id: int, copy_set: tuple[int, ...]) -> Segment | None:
        if not self._is_current(epoch):
            return None
        segment = Segment(segment_id, copy_set)
        if segment_id == len(self.segments):
            self.segments.append(segment)
        else:
            if self.segments[segment_id].state == SEALED:
                raise Violation("I18", f"segment {segment_id} is sealed and was created again by epoch {epoch}")
            self.segments[segment_id] = segment
        if self.unsealed() > UNSEALED_MAX:
            raise Violation("I17", f"{self.unsealed()} unsealed segments")
        return segment
