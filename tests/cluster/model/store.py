"""A segment store: fences, keeps entries by segment and slot, answers what it has, lacks or no longer knows."""

from tests.cluster.model.checks import Violation
from tests.cluster.model.entries import (
    ALL_SLOTS,
    BRIDGE,
    CONTENT,
    MATCHED,
    READ,
    SEAL,
    SEALED,
    SLOTS,
    STALE,
    STORED,
    Entry,
    Message,
)
from tests.cluster.model.mistakes import Mistake

FENCE_IN_SEAL_ONLY = Mistake.FENCE_IN_SEAL_ONLY
NO_EPOCH_CHECK = Mistake.NO_EPOCH_CHECK
LEFTOVERS_MATCHED = Mistake.LEFTOVERS_MATCHED


class Replica:
    """One store's copy of one segment.

    Durable: `sealed` (the sealed epoch) and the entries. `doubt` has a bit for each slot whose newest entry may have
    been lost; a write clears it. Volatile: `there`, the bits of the slots that the leader of epoch `leader_epoch` has
    stored. `unsynced` maps a slot to the entry that a crash brings back.
    """

    __slots__ = ("doubt", "entries", "hint", "leader_epoch", "sealed", "there", "unsynced", "young")

    def __init__(self) -> None:
        self.sealed = 0
        self.entries: list[Entry | None] = [None] * SLOTS
        self.doubt = 0
        self.hint = 0
        self.there = 0
        self.leader_epoch = 0
        self.unsynced: dict[int, Entry | None] = {}
        self.young = True


class Store:
    """A segment store.

    In the relaxed mode it answers before its entries are synced; a crash may lose them, and everything is in doubt.
    """

    __slots__ = ("id", "incarnation", "mistake", "refused", "relaxed", "replicas", "strict")

    def __init__(self, store_id: int, *, relaxed: bool, mistake: Mistake | None, strict: bool) -> None:
        self.id = store_id
        self.relaxed = relaxed
        self.mistake = mistake
        self.strict = strict
        self.incarnation = 0
        self.refused = False
        self.replicas: dict[int, Replica] = {}

    def receive(self, message: Message, *, shortened: bool = False, sync_fails: bool = False) -> Message | None:
        """Handle a request; `shortened` stores drop all entries but the first (back pressure)."""
        kind, _, segment, epoch, leader = message[:5]
        if self.refused:
            return None
        replica = self.replicas[segment]
        if epoch < replica.sealed and epoch and self.mistake is not NO_EPOCH_CHECK:
            return (STALE, leader, replica.sealed)
        if epoch > replica.sealed and (kind == SEAL or self.mistake is not FENCE_IN_SEAL_ONLY):
            replica.sealed = epoch
        if epoch > replica.leader_epoch:
            replica.leader_epoch = epoch
            if self.mistake is not LEFTOVERS_MATCHED:
                replica.there = 0
        if kind == SEAL:
            return (SEALED, leader, self.id, segment, replica.hint)
        if kind == READ:
            return (CONTENT, leader, self.id, segment, replica.hint, tuple(replica.entries), replica.doubt)
        _, _, _, _, _, first, entries, acked = message
        if shortened:
            entries = entries[:1]
        if sync_fails and self.mistake is not Mistake.SYNC_RETRIED:
            # The disk no longer holds what the memory shows: the store restarts from the disk and trusts none of it.
            replica.doubt = ALL_SLOTS
            replica.there = 0
            self.incarnation += 1
            return None
        self._write(replica, epoch, first, entries, acked, unsynced=self.relaxed or sync_fails)
        return (STORED, leader, self.id, segment, self.incarnation, MATCHED[replica.there], replica.there)

    def _write(
        self, replica: Replica, epoch: int, first: int, entries: tuple[Entry, ...], acked: int, *, unsynced: bool
    ) -> None:
        held = replica.entries
        for slot, entry in enumerate(entries, first):
            old = held[slot]
            if old is None or old[3] < entry[3]:
                if self.strict and epoch < replica.sealed:
                    raise Violation("I6", f"store {self.id} sealed at {replica.sealed} stores {entry} of epoch {epoch}")
                if unsynced:
                    replica.unsynced.setdefault(slot, old)
                held[slot] = entry
                if entry[0] == BRIDGE:
                    self._cut(replica, slot, entry[3], unsynced=unsynced)
            elif old != entry:
                # Slots below the acked index keep their stamps in recovery, so another recovery may have gone further.
                if old[3] == entry[3]:
                    raise Violation("I4", f"store {self.id} slot {slot}: {old} and {entry} have the same stamp")
                if slot >= acked or old[:3] != entry[:3]:
                    continue
            bit = 1 << slot
            replica.there |= bit
            replica.doubt &= ~bit
        if acked > replica.hint:
            replica.hint = acked

    @staticmethod
    def _cut(replica: Replica, bridge: int, stamp: int, *, unsynced: bool) -> None:
        """Remove the entries after a bridge that have smaller stamps."""
        held = replica.entries
        for slot in range(bridge + 1, SLOTS):
            old = held[slot]
            if old is not None and old[3] < stamp:
                if unsynced:
                    replica.unsynced.setdefault(slot, old)
                held[slot] = None
        in_front = (2 << bridge) - 1
        replica.doubt &= in_front
        replica.there &= in_front

    def serve(self, segment: int) -> list[Entry]:
        """The entries that a reader receives."""
        replica = self.replicas[segment]
        count = min(replica.hint, MATCHED[replica.there])
        if self.mistake is Mistake.UNACKED_SERVED:
            count = MATCHED[replica.there]
        elif self.mistake is Mistake.UNMATCHED_SERVED:
            count = replica.hint
        served = []
        for entry in replica.entries[:count]:
            if entry is None or entry[0] == BRIDGE:
                break
            served.append(entry)
        return served

    # Faults.

    def crash(self, lost: int, *, hint_lost: bool) -> None:
        """Restart; the unsynced entries in the bits of `lost` are gone."""
        self.incarnation += 1
        for segment, replica in self.replicas.items():
            replica.there = 0
            sealed = replica.sealed
            if self.mistake is Mistake.SEAL_IN_MEMORY:
                replica.sealed = 0
            if self.strict and replica.sealed < sealed:
                raise Violation("I5", f"store {self.id} segment {segment}: sealed epoch fell from {sealed}")
            if hint_lost:
                replica.hint = 0
            for slot, old in replica.unsynced.items():
                if lost >> slot & 1:
                    replica.entries[slot] = old
            replica.unsynced.clear()
            if self.mistake is Mistake.DOUBT_FORGOTTEN:
                replica.doubt = 0
            if self.relaxed and self.mistake is not Mistake.LOST_IS_ABSENT:
                replica.doubt = ALL_SLOTS
            if self.mistake is Mistake.FOREIGN_ENTRY and segment:
                self._recycle(segment, replica)
            if self.mistake is Mistake.FILE_NOT_IN_DIRECTORY and replica.young:
                self.replicas[segment] = Replica()
            self.replicas[segment].young = False

    def _recycle(self, segment: int, replica: Replica) -> None:
        """Find an old entry of the previous segment after the last entry, as in a file that was used before."""
        before = self.replicas.get(segment - 1)
        end = next((slot for slot in reversed(range(SLOTS)) if replica.entries[slot] is not None), -1) + 1
        if before is not None and 0 < end < SLOTS:
            old = before.entries[end]
            if old is not None and old[0] != BRIDGE:
                replica.entries[end] = old

    def sync(self) -> None:
        for replica in self.replicas.values():
            replica.unsynced.clear()

    def damage(self, segment: int, slot: int) -> bool:
        """Damage an entry; return whether there was one."""
        replica = self.replicas[segment]
        entry = replica.entries[slot]
        if entry is None:
            return False
        if self.mistake is Mistake.DAMAGE_SERVED:
            replica.entries[slot] = (entry[0], -entry[1], entry[2], entry[3])
            return True
        if self.mistake is Mistake.CUT_AT_DAMAGE:
            for behind in range(slot, SLOTS):
                replica.entries[behind] = None
        else:
            replica.entries[slot] = None
            replica.doubt |= 1 << slot
        replica.unsynced.clear()
        replica.there &= (1 << slot) - 1
        # The store reads the damage, and restarts the segment with what it still knows.
        self.incarnation += 1
        return True

    def wipe(self) -> None:
        """Lose the disk. The new disk has another cookie, so the master refuses the store under its old id."""
        if self.mistake is Mistake.WIPED_REJOINS:
            self.incarnation += 1
            for segment in self.replicas:
                self.replicas[segment] = Replica()
        else:
            self.refused = True
