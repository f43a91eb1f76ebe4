"""The slots of all keys, by holder, and what the metadata store has to know of them. It has no I/O and no clock.

The stored number of a key and a holder is at least the number of its slots. It is raised in blocks before slots are
granted, and lowered later. So the slots of most subscriptions cost no commit, and after a change of the deciding node,
or its crash, the number is never too low. The ids of slots are not stored: the slots of other holders that were stored
are unclaimed, until their holder renews them or SLOT_SECONDS have passed.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from msgspec import Struct, field

# The deadline of slots whose holder is this process.
NEVER = inf
# The stored number is higher than the number of slots by a half, but not by more than this.
BLOCK_SLOTS_MAX = 256
# The maximum number of holders of one key, and of all slots. Only clients with a root key name other holders.
HOLDERS_PER_KEY_MAX = 1000
SLOTS_MAX = 1_000_000


class TooManySlots(Exception):
    """There are SLOTS_MAX slots, or a key has HOLDERS_PER_KEY_MAX holders."""


def stored_for(count: int) -> int:
    """Return the number that is stored for a number of slots."""
    return count + min(count // 2, BLOCK_SLOTS_MAX)


class HolderSlots(Struct):
    """The slots of one key and one holder."""

    # The deadlines by slot id.
    deadlines: dict[str, float] = field(default_factory=dict)
    # Slots that were stored, and whose ids are not known. All end at the same time.
    unclaimed: int = 0
    unclaimed_until: float = 0.0
    stored: int = 0

    @property
    def count(self) -> int:
        return len(self.deadlines) + self.unclaimed


class SlotTable:
    """All slots. A slot id is known by the key and the holder that it was granted to."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, HolderSlots]] = {}
        # A time not after the deadline, the key, the holder and the slot id; the id is empty for unclaimed ones.
        self._due: list[tuple[float, str, str, str]] = []
        self._total = 0
        # The keys whose stored numbers may be too high.
        self.lowered: set[str] = set()

    @property
    def total(self) -> int:
        return self._total

    def count(self, usage_id: str) -> int:
        return sum(one.count for one in self._keys.get(usage_id, {}).values())

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def load(self, usage_id: str, value: dict[str, int], own_holder: str, until: float) -> None:
        """Set the stored numbers of a key. The slots of other holders become unclaimed until `until`.

        The slots of the own holder stay: this process has granted them to itself, and knows all of them.
        """
        holders = self._keys.setdefault(usage_id, {})
        for holder in {*holders, *value}:
            slots = holders.setdefault(holder, HolderSlots())
            slots.stored = value.get(holder, 0)
            if holder != own_holder:
                self._total += slots.stored - slots.count
                slots.deadlines.clear()
                slots.unclaimed, slots.unclaimed_until = slots.stored, until
                if slots.unclaimed:
                    heappush(self._due, (until, usage_id, holder, ""))
        self.lowered.add(usage_id)

    def take(self, usage_id: str, holder: str, slot_id: str, deadline: float, limit: int | None) -> bool:
        """Take a slot, or return False if the key has `limit` of them. Raises TooManySlots."""
        if limit is not None and self.count(usage_id) >= limit:
            return False
        holders = self._keys.get(usage_id, {})
        if self._total >= SLOTS_MAX or (holder not in holders and len(holders) >= HOLDERS_PER_KEY_MAX):
            raise TooManySlots
        slots = self._keys.setdefault(usage_id, holders).setdefault(holder, HolderSlots())
        self._total += 1
        self._set_deadline(usage_id, holder, slots, slot_id, deadline)
        return True

    def renew(self, usage_id: str, holder: str, slot_id: str, deadline: float) -> bool:
        """Extend a slot. A slot whose id is not known claims an unclaimed one. Returns False if there is neither."""
        slots = self._keys.get(usage_id, {}).get(holder)
        if slots is None:
            return False
        if slot_id not in slots.deadlines:
            if not slots.unclaimed:
                return False
            slots.unclaimed -= 1
        self._set_deadline(usage_id, holder, slots, slot_id, deadline)
        return True

    def release(self, usage_id: str, holder: str, slot_id: str | None) -> bool:
        """Free a slot, without an id the one that would expire first. Returns False if no such slot is known.

        Unclaimed slots are not freed: the release may be a repeated one.
        """
        slots = self._keys.get(usage_id, {}).get(holder)
        if slots is None or not slots.deadlines:
            return False
        if slot_id is None:
            slot_id = min(slots.deadlines, key=slots.deadlines.__getitem__)
        if slots.deadlines.pop(slot_id, None) is None:
            return False
        self._total -= 1
        self.lowered.add(usage_id)
        return True

    def expire(self, now: float) -> int:
        """Free the slots whose deadlines have passed, and return their number."""
        freed = 0
        while self._due and self._due[0][0] <= now:
            _, usage_id, holder, slot_id = heappop(self._due)
            slots = self._keys.get(usage_id, {}).get(holder)
            if slots is None:
                continue
            deadline = slots.deadlines.get(slot_id) if slot_id else slots.unclaimed_until
            if deadline is None:
                continue
            if deadline > now:
                heappush(self._due, (deadline, usage_id, holder, slot_id))
            elif slot_id:
                freed += self.release(usage_id, holder, slot_id)
            else:
                freed += slots.unclaimed
                self._total -= slots.unclaimed
                slots.unclaimed = 0
                self.lowered.add(usage_id)
        return freed

    # --- what is stored

    def is_stored(self, usage_id: str, holder: str) -> bool:
        """Return whether the stored number covers all slots of a holder."""
        slots = self._keys[usage_id][holder]
        return slots.count <= slots.stored

    def is_too_high(self, usage_id: str) -> bool:
        return any(stored_for(one.count) < one.stored for one in self._keys.get(usage_id, {}).values())

    def value(self, usage_id: str) -> dict[str, int] | None:
        """Return the value to store for a key; None if it has no slots."""
        holders = self._keys.get(usage_id, {})
        return {holder: stored_for(one.count) for holder, one in holders.items() if one.count} or None

    def note_stored(self, usage_id: str, value: dict[str, int] | None) -> None:
        holders = self._keys.get(usage_id, {})
        for holder, slots in tuple(holders.items()):
            slots.stored = (value or {}).get(holder, 0)
            if not slots.count and not slots.stored:
                del holders[holder]
        if not holders:
            self._keys.pop(usage_id, None)

    def _set_deadline(self, usage_id: str, holder: str, slots: HolderSlots, slot_id: str, deadline: float) -> None:
        if slot_id not in slots.deadlines and deadline != NEVER:
            heappush(self._due, (deadline, usage_id, holder, slot_id))
        slots.deadlines[slot_id] = deadline
