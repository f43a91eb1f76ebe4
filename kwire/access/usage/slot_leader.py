"""The node that decides about subscription slots. It holds the lease `subscriptions` of the metadata store.

Every decision is made in one step of the event loop, so two requests cannot take the same last slot. A commit is made
only when the stored number of a key has to rise (`slot_table`), and commits of many keys are grouped. Each commit has
the condition that this node still holds the lease.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from kwire.access.keys.key import Key
from kwire.access.usage.slot_table import NEVER, SlotTable, TooManySlots
from kwire.access.usage.subscription_slots import SLOT_SECONDS, Slot, SlotDenied, SlotsUnavailable
from kwire.clock import Clock
from kwire.metastore import Change, Condition, Conflict, Lease, MetaStore
from kwire.metastore.grouped_writes import GroupedWrites
from kwire.metastore.interface import ABSENT, LeaseLost
from storage.errors import StorageError

log = logging.getLogger("kwire.access")

LEADER_KEY = "lease/subscriptions"
SLOTS_PREFIX = "slots/"
# The time to live of the lease. Another node can decide this long after the node that held it has failed.
LEADER_SECONDS = 15
# How often the lease is renewed, expired slots are freed, and stored numbers are lowered.
TICK_SECONDS = 1.0


class SlotLeader:
    """The slots of all keys. It implements `SubscriptionSlots` for the sessions of this node, its `holder`.

    Use it only in the event loop's thread.
    """

    def __init__(self, metastore: MetaStore, clock: Clock, holder: str) -> None:
        self._metastore = metastore
        self._clock = clock
        self.holder = holder
        self._table = SlotTable()
        self._lease: Lease | None = None
        # The revision of LEADER_KEY while this node decides.
        self._leader_revision = ABSENT
        self._task: asyncio.Task[None] | None = None
        self._writes = GroupedWrites(metastore, self._value_of, self._note_stored, self._conditions)
        self.granted = self.denied = self.expired = 0

    @property
    def is_leading(self) -> bool:
        return self._lease is not None

    @property
    def total(self) -> int:
        """The number of slots that are in use or unclaimed."""
        return self._table.total

    def count(self, usage_id: str) -> int:
        return self._table.count(usage_id)

    # --- the interface SubscriptionSlots

    async def request(self, key: Key) -> Slot:
        return await self.request_for(key, self.holder)

    def release(self, slot: Slot) -> None:
        self.release_for(*slot)

    # --- slots of all holders

    async def request_for(self, key: Key, holder: str, slot_id: str | None = None) -> Slot:
        """Take a slot for a holder, or renew the slot with this id.

        Slots of other holders than this node expire after SLOT_SECONDS, unless they are renewed. A holder does not
        renew a slot later than that: after a crash of this node, it could claim the slot of another session.
        """
        if self._lease is None:
            raise SlotsUnavailable("this node does not decide about subscription slots now: try again")
        usage_id, limit = key.usage_id, key.limits.max_subscriptions
        deadline = NEVER if holder == self.holder else self._clock.monotonic() + SLOT_SECONDS
        if slot_id is not None and self._table.renew(usage_id, holder, slot_id, deadline):
            return Slot(usage_id, holder, slot_id)
        slot = Slot(usage_id, holder, slot_id or token_hex(16))
        try:
            is_taken = self._table.take(*slot, deadline, limit)
        except TooManySlots:
            raise SlotsUnavailable("there are too many subscriptions: try again later") from None
        if not is_taken:
            assert limit is not None
            self.denied += 1
            raise SlotDenied(self._table.count(usage_id), limit)
        if not self._table.is_stored(usage_id, holder):
            try:
                await asyncio.shield(self._writes.request(SLOTS_PREFIX + usage_id))
            except BaseException as error:
                self._table.release(*slot)
                if isinstance(error, Conflict):
                    self._lose()
                    raise SlotsUnavailable("another node decides about subscription slots: try again") from error
                raise
        self.granted += 1
        return slot

    def release_for(self, usage_id: str, holder: str, slot_id: str | None) -> bool:
        """Free a slot of a holder, without an id the one that expires first. Returns False if it has no such slot."""
        return self._table.release(usage_id, holder, slot_id)

    # --- the lease

    async def start(self) -> None:
        """Begin to decide, if no other node does, and keep the lease until `close`."""
        await self._tick_safely()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Store that this node has no slots any longer, and give up the lease. The sessions must have ended."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._lease is None:
            return
        try:
            self._lower()
            await self._writes.idle()
            await self._lease.revoke()
        except (StorageError, LeaseLost) as error:
            log.warning("the lease of the subscription slots could not be given up; it expires: %s", error)
        self._lose()

    async def tick(self) -> None:
        """Renew the lease or try to get it, free expired slots and lower stored numbers. The timer calls this."""
        if self._lease is not None:
            try:
                await self._lease.keep_alive()
            except LeaseLost:
                self._lose()
        if self._lease is None:
            await self._take_lease()
        if self._lease is not None:
            self.expired += self._table.expire(self._clock.monotonic())
            self._lower()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._tick_safely()

    async def _tick_safely(self) -> None:
        try:
            await self.tick()
        except (StorageError, Conflict, LeaseLost) as error:
            log.warning("the lease of the subscription slots could not be taken or renewed; it is retried: %s", error)

    async def _take_lease(self) -> None:
        entry = self._metastore.get(LEADER_KEY)
        if entry is not None and entry.value["holder"] != self.holder:
            return
        if entry is not None:
            # A process of this node that has ended held it. Nobody else can have it meanwhile.
            lease: Lease = await self._metastore.resume_lease(entry.value["lease"], self._lose)
            revision = entry.revision
        else:
            lease = await self._metastore.lease(LEADER_SECONDS, self._lose)
            value = {"holder": self.holder, "lease": lease.lease_id}
            revision = await self._metastore.commit([Change(LEADER_KEY, value, ABSENT, lease.lease_id)])
        until = self._clock.monotonic() + SLOT_SECONDS
        stored = {key.removeprefix(SLOTS_PREFIX): one.value for key, one in self._metastore.entries(SLOTS_PREFIX)}
        for usage_id in {*stored, *self._table}:
            self._table.load(usage_id, stored.get(usage_id, {}), self.holder, until)
        self._lease, self._leader_revision = lease, revision

    def _lose(self) -> None:
        """Stop deciding. The sessions of this node go on, and their slots are kept."""
        self._lease, self._leader_revision = None, ABSENT

    # --- stored numbers

    def _lower(self) -> None:
        for usage_id in self._table.lowered:
            if self._table.is_too_high(usage_id):
                self._writes.request(SLOTS_PREFIX + usage_id)
        self._table.lowered.clear()

    def _conditions(self) -> Sequence[Condition]:
        return (Condition(LEADER_KEY, self._leader_revision),)

    def _value_of(self, key: str) -> Any:
        return self._table.value(key.removeprefix(SLOTS_PREFIX))

    def _note_stored(self, key: str, value: Any) -> None:
        self._table.note_stored(key.removeprefix(SLOTS_PREFIX), value)
