"""What the master has heard since it started: leases, candidates and stores. It is not stored."""

from typing import Final, NamedTuple

from kwire.cluster.core.control import Heartbeat, StoreHeartbeat
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.cluster.master.decisions import LeaseTerm

# The maximum number of candidates of a stream. Further ones are not considered until one of these is silent.
CANDIDATES_MAX: Final = 100
# The maximum number of segments in a heartbeat of a store. The master could not count the copies of the others.
REPORTED_SEGMENTS_MAX: Final = 100_000


class Leases:
    """The leases of leaders. The master judges their expiry by its own clock; stores do not know of leases."""

    def __init__(self) -> None:
        self._terms: dict[str, LeaseTerm] = {}
        self._elections: dict[str, int] = {}
        self._latest_ms = 0

    def observe(self, now: int) -> None:
        """Take note of the time of a request. A decision that is taken again has an earlier time than others."""
        self._latest_ms = max(self._latest_ms, now)

    def is_live(self, stream: str, epoch: int, ttl_ms: int, now: int) -> bool:
        """Whether the leader of this epoch may believe in its lease.

        A lease that this master does not remember may have been renewed just before: it lasts its whole time from the
        moment when the master first has to judge it. An earlier master can not have renewed it later than that.
        """
        term = self._terms.get(stream)
        if term is None or term.epoch != epoch:
            term = LeaseTerm(stream, epoch, max(now, self._latest_ms) + ttl_ms)
            self._terms[stream] = term
        return now < term.expires_ms

    def extend(self, term: LeaseTerm) -> None:
        known = self._terms.get(term.stream)
        if known is None or (known.epoch, known.expires_ms) < (term.epoch, term.expires_ms):
            self._terms[term.stream] = term

    def begin_election(self, stream: str) -> None:
        self._elections[stream] = self._elections.get(stream, 0) + 1

    def end_election(self, stream: str) -> None:
        self._elections[stream] -= 1
        if not self._elections[stream]:
            del self._elections[stream]

    def in_election(self, stream: str) -> bool:
        """Whether the commit of an election is under way. A renewal in the meantime would make two leases."""
        return stream in self._elections


class Candidate(NamedTuple):
    """A candidate for the leadership of a stream."""

    client: str
    store: str
    heard_ms: int


class Candidates:
    """The clients that want to lead, by stream."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._by_stream: dict[str, dict[str, Candidate]] = {}

    def hear(self, request: Heartbeat, now: int) -> None:
        candidates = self._by_stream.setdefault(request.stream, {})
        if request.client not in candidates:
            self._remove_silent(candidates, now)
            if len(candidates) >= CANDIDATES_MAX:
                return
        candidates[request.client] = Candidate(request.client, request.store, now)

    def of(self, stream: str, now: int) -> list[Candidate]:
        """The candidates that were heard of recently, in the order of their names."""
        candidates = self._by_stream.get(stream, {})
        self._remove_silent(candidates, now)
        return sorted(candidates.values())

    def _remove_silent(self, candidates: dict[str, Candidate], now: int) -> None:
        for one in [one for one in candidates.values() if one.heard_ms + self._ttl_ms <= now]:
            del candidates[one.client]


class StoreLife(NamedTuple):
    """The last heartbeat of a store."""

    incarnation: Incarnation
    heard_ms: int
    sequence: int
    free_bytes: int
    incomplete: frozenset[SegmentId]
    limbo: frozenset[SegmentId]


class Heard:
    """The heartbeats of stores since `since_ms`, when the master started."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._lives: dict[str, StoreLife] = {}

    def hear(self, request: StoreHeartbeat, now: int) -> None:
        """Remember the heartbeat of a registered store. One that was overtaken by a later one is ignored."""
        known = self._lives.get(request.store)
        if known is not None and known.incarnation == request.incarnation and known.sequence > request.sequence:
            return
        self._lives[request.store] = StoreLife(
            request.incarnation,
            now,
            request.sequence,
            request.free_bytes,
            frozenset(request.unclosed),
            frozenset(request.limbo),
        )

    def get(self, store: str) -> StoreLife | None:
        return self._lives.get(store)
