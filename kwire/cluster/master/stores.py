"""Stores: their identity, and how the master judges them by their heartbeats."""

from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct

from kwire.cluster.core.control import DrainStore, StoreAccepted, StoreHeartbeat, StoreRejected
from kwire.cluster.core.messages import Incarnation, Member, SegmentId
from kwire.cluster.master.decisions import Decision
from kwire.cluster.master.liveness import REPORTED_SEGMENTS_MAX, Heard
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import (
    NAME_BYTES_MAX,
    STORES_MAX,
    StoreEntry,
    Versioned,
    created,
    is_valid_name,
    store_key,
)


class Health(IntEnum):
    """ALIVE stores send heartbeats. SUSPECT ones may come back, FAILED ones are replaced."""

    ALIVE = 0
    SUSPECT = 1
    FAILED = 2


class StoreStatus(Struct, frozen=True):
    """A registered store as the master judges it now. `load` is the number of unsealed segments that it holds."""

    name: str
    incarnation: Incarnation
    rack: str
    is_draining: bool
    health: Health
    free_bytes: int
    load: int
    incomplete: frozenset[SegmentId] = frozenset()
    limbo: frozenset[SegmentId] = frozenset()

    @property
    def member(self) -> Member:
        return Member(self.name, self.incarnation.cookie)

    @property
    def is_usable(self) -> bool:
        return self.health is Health.ALIVE and not self.is_draining

    @property
    def takes_segments(self) -> bool:
        """Whether the store may be chosen for a new replica. A store in limbo has open segments to repair first."""
        return self.is_usable and not self.limbo

    def vouches_for(self, segment: SegmentId) -> bool:
        return segment not in self.incomplete and segment not in self.limbo


def status_of(entry: StoreEntry, heard: Heard, load: int, settings: MasterSettings, now: int) -> StoreStatus:
    """Judge a store. A store that this master has never heard of is not alive, and fails later than others."""
    life = heard.get(entry.name)
    if life is None or life.incarnation != entry.incarnation:
        silent_ms = now - (life.heard_ms if life is not None else heard.since_ms)
        health = Health.FAILED if silent_ms >= settings.store_replace_ms else Health.SUSPECT
        return StoreStatus(entry.name, entry.incarnation, entry.rack, entry.is_draining, health, 0, load)
    silent_ms = now - life.heard_ms
    health = Health.ALIVE
    if silent_ms >= settings.store_timeout_ms:
        health = Health.FAILED if silent_ms >= settings.store_replace_ms else Health.SUSPECT
    return StoreStatus(
        entry.name,
        entry.incarnation,
        entry.rack,
        entry.is_draining,
        health,
        life.free_bytes,
        load,
        life.incomplete,
        life.limbo,
    )


def decide_registration(
    request: StoreHeartbeat, known: Versioned[StoreEntry] | None, others: Iterable[StoreEntry]
) -> Decision:
    """Accept a heartbeat of the newest process on the disk that belongs to this name. Refuse all others.

    `others` are the stores with other names.
    """
    reason = _reason_to_reject(request)
    if reason:
        return _rejected(request, reason)
    accepted = StoreAccepted(request.store, request.incarnation)
    if known is None:
        cookie = request.incarnation.cookie
        count = 0
        for other in others:
            count += 1
            if other.incarnation.cookie == cookie:
                return _rejected(request, f"its disk belongs to the store {other.name}")
        if count >= STORES_MAX:
            return _rejected(request, f"there are {STORES_MAX} stores, which is the maximum")
        entry = StoreEntry(request.store, request.incarnation, request.rack)
        return Decision(accepted, (created(store_key(request.store), entry),))
    entry = known.value
    if entry.incarnation.cookie != request.incarnation.cookie:
        return _rejected(request, "the store was registered with another disk")
    if request.incarnation.start < entry.incarnation.start:
        return _rejected(request, "the store was started again: this is an earlier process")
    if request.incarnation == entry.incarnation and request.rack == entry.rack:
        return Decision(accepted)
    changed = StoreEntry(entry.name, request.incarnation, request.rack, entry.is_draining)
    return Decision(accepted, (known.changed(changed),))


def _rejected(request: StoreHeartbeat, reason: str) -> Decision:
    return Decision(StoreRejected(request.store, reason, request.incarnation))


def _reason_to_reject(request: StoreHeartbeat) -> str:
    if not is_valid_name(request.store) or len(request.rack.encode()) > NAME_BYTES_MAX:
        return f"the names of stores and racks have at most {NAME_BYTES_MAX} bytes, and stores have a name"
    if len(request.unclosed) + len(request.limbo) > REPORTED_SEGMENTS_MAX:
        return f"a heartbeat names at most {REPORTED_SEGMENTS_MAX} incomplete segments"
    return ""


def decide_drain(request: DrainStore, known: Versioned[StoreEntry] | None) -> Decision:
    """Record that the store is emptied, or used again."""
    if known is None:
        return Decision(StoreRejected(request.store, "the store does not exist"))
    entry = known.value
    if entry.is_draining == request.is_draining:
        return Decision(StoreAccepted(request.store))
    changed = StoreEntry(entry.name, entry.incarnation, entry.rack, request.is_draining)
    return Decision(StoreAccepted(request.store), (known.changed(changed),))
