"""The invariants, checked against everything that leaders and readers saw in a schedule."""

from collections.abc import Sequence

from tests.cluster.model.entries import BRIDGE, EVENT, HOLE, SLOTS, Content, Entry


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class History:
    """What was proposed, acknowledged, recovered and delivered; raises Violation when an invariant breaks."""

    __slots__ = ("acked", "completed", "delivered", "prefix", "proposed")

    def __init__(self, *, prefix: bool) -> None:
        self.prefix = prefix
        # By segment and slot.
        self.proposed: dict[int, Content] = {}
        self.acked: dict[int, Content] = {}
        self.delivered: dict[int, Content] = {}
        # The entries in front of the bridge, by segment, as soon as a recovery has W copies of them and of the bridge.
        self.completed: dict[int, tuple[Content, ...]] = {}

    def propose(self, segment: int, slot: int, entry: Entry) -> None:
        self.proposed[entry[1]] = (segment, slot, entry[2])

    def acknowledge(self, segment: int, slot: int, entry: Entry) -> None:
        if entry[0] == BRIDGE:
            return
        key, content = segment * SLOTS + slot, entry[:3]
        before = self.acked.setdefault(key, content)
        if before != content:
            raise Violation("I3", f"segment {segment} slot {slot}: {content} acknowledged after {before}")
        done = self.completed.get(segment)
        if done is not None and (slot >= len(done) or done[slot] != content):
            raise Violation("I1", f"segment {segment} slot {slot}: {content} acknowledged, recovery left {done}")
        if self.delivered.get(key, content) != content:
            raise Violation("I14", f"segment {segment} slot {slot}: {content} acknowledged, {self.delivered[key]} read")

    def complete(self, segment: int, log: Sequence[Entry]) -> None:
        """A recovery, or a leader's own bridge, has W copies of every entry of `log`, the last of which is a bridge."""
        content = tuple(entry[:3] for entry in log[:-1])
        before = self.completed.setdefault(segment, content)
        if before != content:
            raise Violation("I2", f"segment {segment}: recovered {content} after {before}")
        self._check_content(segment, content)
        first = segment * SLOTS
        for key, acked in self.acked.items():
            if first <= key < first + SLOTS:
                there = content[key - first] if key - first < len(content) else None
                if there != acked:
                    same_payload = there is not None and there[:2] == acked[:2]
                    text = f"segment {segment} slot {key - first}: {acked} acknowledged, {there} recovered"
                    raise Violation("I8" if same_payload else "I1", text)
        for key, read in self.delivered.items():
            if first <= key < first + SLOTS and (key - first >= len(content) or content[key - first] != read):
                raise Violation("I14", f"segment {segment} slot {key - first}: {read} read, recovery left {content}")

    def _check_content(self, segment: int, content: tuple[Content, ...]) -> None:
        for slot, (kind, payload, birth) in enumerate(content):
            if kind == EVENT:
                proposed = self.proposed.get(payload)
                if proposed is None or proposed[:2] != (segment, slot):
                    raise Violation("I25", f"segment {segment} slot {slot} has event {payload}, proposed as {proposed}")
                if proposed[2] != birth:
                    raise Violation(
                        "I8", f"event {payload} was born in epoch {proposed[2]} and has birth epoch {birth}"
                    )
            elif kind == BRIDGE:
                raise Violation("I16", f"segment {segment} has a bridge at slot {slot} and events after it: {content}")
            elif self.prefix and kind == HOLE:
                raise Violation(
                    "I15", f"segment {segment} has a hole at slot {slot} under the prefix policy: {content}"
                )

    def deliver(self, segment: int, slot: int, entry: Entry) -> None:
        """A reader received `entry`."""
        key, content = segment * SLOTS + slot, entry[:3]
        before = self.delivered.setdefault(key, content)
        if before != content:
            raise Violation("I14", f"segment {segment} slot {slot}: {content} read after {before}")
        done = self.completed.get(segment)
        if done is not None and (slot >= len(done) or done[slot] != content):
            raise Violation("I14", f"segment {segment} slot {slot}: {content} read, recovery left {done}")
        if self.acked.get(key, content) != content:
            raise Violation("I14", f"segment {segment} slot {slot}: {content} read, {self.acked[key]} acknowledged")

    def is_committed(self, segment: int, slot: int) -> bool:
        """Whether a reader may see the slot: it was acknowledged, or belongs to a completed recovery."""
        return segment * SLOTS + slot in self.acked or slot < len(self.completed.get(segment, ()))
