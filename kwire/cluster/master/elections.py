"""Elections and leases: which client leads a stream, and with which epoch.

The epoch is the fencing token: it only grows, and every commit of a leader is refused if a newer epoch exists. A lease
is only a promise not to elect another leader for some time. No write depends on it.
"""

from collections.abc import Callable

import msgspec

from kwire.cluster.core.control import (
    ClientAnswer,
    Granted,
    Heartbeat,
    NotLeader,
    Renewed,
    SegmentRecord,
    Unavailable,
)
from kwire.cluster.master.decisions import Decision, LeaseTerm
from kwire.cluster.master.liveness import Candidate, Candidates, Leases
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import EPOCH_MAX, NAME_BYTES_MAX, Leader, StreamEntry, Versioned, is_valid_name


def decide_heartbeat(
    request: Heartbeat,
    stream: Versioned[StreamEntry],
    records: tuple[SegmentRecord, ...],
    hosts_replica: Callable[[Candidate], bool],
    must_roll: Callable[[], bool],
    leases: Leases,
    candidates: Candidates,
    settings: MasterSettings,
    now: int,
    choice: int,
) -> Decision:
    """Renew the lease of the leader, or elect the sender if no lease is live and it is the chosen candidate."""
    entry = stream.value
    if not is_valid_name(request.client) or len(request.store.encode()) > NAME_BYTES_MAX:
        reason = f"the name of a client has from 1 to {NAME_BYTES_MAX} bytes, and that of a store at most as many"
        return Decision(Unavailable(entry.name, entry.epoch, reason))
    if request.epoch:
        return _renewal(request, entry, must_roll, leases, settings, now)
    if entry.leader is not None and entry.leader.client == request.client:
        if 0 < request.candidacy == entry.leader.candidacy:
            if leases.in_election(entry.name):
                return Decision(_election_under_way(entry))
            return _granted(request, entry, records, settings, now)
        if request.candidacy >= entry.leader.candidacy:
            # The leader has given up its epoch, or its process was started again. The live lease is its own.
            return _election(request, stream, records, settings, now)
    candidates.hear(request, now)
    if _is_led(entry, leases, now) or not _is_chosen(request, candidates.of(entry.name, now), hosts_replica, choice):
        return Decision(NotLeader(entry.name, entry.epoch))
    return _election(request, stream, records, settings, now)


def _is_led(entry: StreamEntry, leases: Leases, now: int) -> bool:
    return entry.leader is not None and leases.is_live(entry.name, entry.epoch, entry.leader.ttl_ms, now)


def _is_chosen(
    request: Heartbeat, candidates: list[Candidate], hosts_replica: Callable[[Candidate], bool], choice: int
) -> bool:
    """Whether the sender is the choice among the candidates. Candidates on the machine of a good replica come first."""
    preferred = [one for one in candidates if one.store and hosts_replica(one)] or candidates
    return bool(preferred) and preferred[choice % len(preferred)].client == request.client


def _election(
    request: Heartbeat,
    stream: Versioned[StreamEntry],
    records: tuple[SegmentRecord, ...],
    settings: MasterSettings,
    now: int,
) -> Decision:
    entry = stream.value
    if entry.epoch >= EPOCH_MAX:
        return Decision(Unavailable(entry.name, entry.epoch, f"the stream has used all epochs up to {EPOCH_MAX}"))
    elected = msgspec.structs.replace(
        entry,
        epoch=entry.epoch + 1,
        leader=Leader(request.client, request.candidacy, settings.lease_ttl_ms),
    )
    granted = _granted(request, elected, records, settings, now)
    return msgspec.structs.replace(granted, changes=(stream.changed(elected),))


def _granted(
    request: Heartbeat,
    entry: StreamEntry,
    records: tuple[SegmentRecord, ...],
    settings: MasterSettings,
    now: int,
) -> Decision:
    ttl_ms = settings.lease_ttl_ms
    return Decision(
        Granted(entry.name, entry.epoch, ttl_ms, request.sent_at, records, request.candidacy),
        lease=LeaseTerm(entry.name, entry.epoch, now + ttl_ms),
    )


def _renewal(
    request: Heartbeat,
    entry: StreamEntry,
    must_roll: Callable[[], bool],
    leases: Leases,
    settings: MasterSettings,
    now: int,
) -> Decision:
    if entry.leader is None or request.epoch != entry.epoch or request.client != entry.leader.client:
        return Decision(NotLeader(entry.name, entry.epoch))
    if leases.in_election(entry.name):
        return Decision(_election_under_way(entry))
    ttl_ms = settings.lease_ttl_ms
    # A lease that has expired is renewed, too: no other leader was elected in the meantime.
    return Decision(
        Renewed(entry.name, entry.epoch, ttl_ms, request.sent_at, must_roll()),
        lease=LeaseTerm(entry.name, entry.epoch, now + ttl_ms),
    )


def _election_under_way(entry: StreamEntry) -> ClientAnswer:
    return Unavailable(entry.name, entry.epoch, "another leader may be elected at this moment")
