"""Fetch sessions (KIP-227). The server caches the partitions of a reader, so requests and responses are incremental.

A reader that sends a full fetch request may get a session. Its later requests contain only the partitions that it adds,
changes or removes, and the responses contain only partitions that have changed. The number of sessions is limited.
Sessions are only in memory. A reader whose session no longer exists sends a full request again.

When all slots are in use, Kafka's eviction rule applies. A session that was not used for `eviction_ms` is evicted for
any new session. Otherwise a new session evicts the smallest session that is older than `eviction_ms`, if the new
session is larger. So a client that opens a session for each poll cannot evict sessions in use. Kafka also has
privileged sessions for followers. kwire has no followers: a client that sends a `replica_id` gets a consumer's session.
"""

import secrets
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from kwire.broker.partition import Partition
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError

NO_SESSION = 0
# The epochs of full fetch requests. FINAL_EPOCH closes the session. INITIAL_EPOCH requests a new session.
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
EPOCH_MAX = SESSION_ID_MAX = 2**31 - 1

# A session that was not used for this long can be evicted by any new session. A session younger than this is not
# evicted by a larger session. Kafka has the same value.
EVICTION_MS_MIN = 120_000
# The maximum number of partitions in all sessions together. Each needs about 450 bytes. Kafka limits only the number of
# sessions.
PARTITIONS_MAX = 250_000

# The cached offsets of a partition whose last response was an error, or that had no response yet. The next response
# always contains the partition.
NOT_ANSWERED = -1

_HEAP_SLACK = 64

TopicKey = str | bytes


class RequestedPartition(Protocol):
    """One partition of a Fetch request."""

    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def fetch_offset(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...
    @property
    def partition_max_bytes(self) -> int: ...


class CachedPartition:
    """One partition of a session, with the values of the last request and the last response.

    `topic` is the topic's name or its id, as in the requests of the session. `live` is the `Partition` object, or None
    until it has been looked up. The objects are small, because there may be up to PARTITIONS_MAX of them.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "last_stable_offset",
        "live",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "topic",
    )

    def __init__(self, topic: TopicKey, asked: RequestedPartition) -> None:
        self.topic = topic
        self.partition = asked.partition
        self.live: Partition | None = None
        self.request(asked)
        self.record_answer(NOT_ANSWERED, NOT_ANSWERED, NOT_ANSWERED)

    def request(self, asked: RequestedPartition) -> None:
        self.current_leader_epoch = asked.current_leader_epoch
        self.fetch_offset = asked.fetch_offset
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.partition_max_bytes = asked.partition_max_bytes

    def record_answer(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """Store the offsets of a response.

        After an error, callers pass NOT_ANSWERED, so that the next response contains the partition in any case.
        """
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset

    def is_unchanged(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bool:
        return (
            self.high_watermark == high_watermark
            and self.last_stable_offset == last_stable_offset
            and self.log_start_offset == log_start_offset
        )


class EvictionKey(NamedTuple):
    """The sort key for evictions: smaller sessions are evicted first. The id makes the key unique."""

    size: int
    session_id: int


class FetchSession:
    """The session of one reader.

    `partitions` are in the order in which they last had records in a response, oldest first. `epoch` is the expected
    epoch of the next request. `uses_topic_ids` says whether requests identify topics by id. It never changes.
    `owner` is the prefix of the reader's scope; for readers of other scopes the session does not exist.
    """

    __slots__ = (
        "_lookup_state",
        "created",
        "epoch",
        "eviction_key",
        "is_evictable",
        "last_used",
        "owner",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float, owner: str = "") -> None:
        self.session_id = session_id
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.created = self.last_used = now
        self.epoch = INITIAL_EPOCH + 1
        # The eviction key when the session was last used, and whether the session was older than `eviction_ms` then.
        self.eviction_key = EvictionKey(0, session_id)
        self.is_evictable = False
        self.partitions: dict[tuple[TopicKey, int], CachedPartition] = {}
        self._lookup_state: object = None

    def request(self, topic: TopicKey, asked: Iterable[RequestedPartition]) -> None:
        """Add partitions of a topic, or update their request values."""
        partitions = self.partitions
        for one in asked:
            key = topic, one.partition
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = CachedPartition(topic, one)
            else:
                cached.request(one)

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.partitions.pop((topic, index), None)

    def move_to_end(self, cached: CachedPartition) -> None:
        """Move a partition that had records in the response to the end of `partitions`.

        The next response then begins with other partitions.
        """
        key = cached.topic, cached.partition
        # The partition may have been removed from the session while the response was built.
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = cached

    def look_up_again(self, state: object) -> None:
        """Clear the cached `live` partitions if `state` differs from the last call.

        `state` is everything that lookups depend on: the deletions of topics so far and the rights of the reader.
        """
        if self._lookup_state != state:
            self._lookup_state = state
            for cached in self.partitions.values():
                cached.live = None


class FetchSessions:
    """All fetch sessions of this node, in the order of their last use."""

    def __init__(
        self,
        clock: Clock,
        slots: int,
        eviction_ms: int = EVICTION_MS_MIN,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._clock = clock
        self._slots = slots
        self._eviction_s = eviction_ms / 1000
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}
        self._evictable = _EvictionQueue(self._sessions)
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, size: int, *, uses_topic_ids: bool, owner: str = "") -> FetchSession | None:
        """Return a new session, or None if there is no space for one with `size` partitions.

        The caller adds the partitions to the session and then calls `add`.
        """
        now = self._clock.monotonic()
        return FetchSession(self._new_id(), uses_topic_ids, now, owner) if self._make_room(size, now) else None

    def add(self, session: FetchSession) -> int:
        """Open a session that `begin` returned.

        Returns its id, or NO_SESSION if other sessions have used up the space since `begin`.
        """
        now = self._clock.monotonic()
        if session.session_id in self._sessions or not self._make_room(len(session.partitions), now):
            return NO_SESSION
        self._sessions[session.session_id] = session
        self._use(session, now, is_new=True)
        return session.session_id

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool, owner: str = "") -> FetchSession:
        """Return the session of a request.

        Raises KafkaError if there is no such session, or if its epoch or `uses_topic_ids` differs from the request.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def advance(self, session: FetchSession) -> None:
        """Increment the session's epoch, after a request was applied. Close the session if it has no partitions.

        Raises KafkaError, and closes the session, if all sessions together would have too many partitions.
        """
        added = len(session.partitions) - session.eviction_key.size
        if not session.partitions:
            self.close(session.session_id)
        elif added > 0 and self.partition_count + added > self._partitions_max:
            # After this error, the reader sends a full request. Its response may have no session.
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
            # Move the session to the end. The least recently used session is the first.
            self._sessions[session.session_id] = self._sessions.pop(session.session_id)
            self._use(session, self._clock.monotonic())

    def close_of(self, owner: str, session_id: int) -> None:
        """Close a session, if this owner has it."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.eviction_key.size

    def _use(self, session: FetchSession, now: float, *, is_new: bool = False) -> None:
        session.last_used = now
        size = len(session.partitions)
        is_changed = is_new or session.eviction_key.size != size
        if is_changed:
            self.partition_count += size - session.eviction_key.size
            session.eviction_key = EvictionKey(size, session.session_id)
        is_old = now - session.created > self._eviction_s
        if is_old and (is_changed or not session.is_evictable):
            self._evictable.add(session)
        session.is_evictable = is_old

    def _make_room(self, size: int, now: float) -> bool:
        if size > self._partitions_max:
            return False
        if len(self._sessions) >= self._slots and not (
            self._evict_stale(now) or self._evict_smaller(EvictionKey(size, NO_SESSION))
        ):
            return False
        while self.partition_count + size > self._partitions_max:
            if not self._evict_stale(now):
                return False
        return True

    def _evict_stale(self, now: float) -> bool:
        session = next(iter(self._sessions.values()), None)
        if session is None or now - session.last_used <= self._eviction_s:
            return False
        self._evict(session)
        return True

    def _evict_smaller(self, eviction_key: EvictionKey) -> bool:
        session = self._evictable.first()
        if session is None or eviction_key < session.eviction_key:
            return False
        self._evict(session)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.close(session.session_id)
        self.eviction_count += 1

    def _new_id(self) -> int:
        """Return a random id that cannot be guessed, so that no client can use the session of another client."""
        while True:
            session_id = secrets.randbelow(SESSION_ID_MAX) + 1
            if session_id not in self._sessions:
                return session_id


class _EvictionQueue:
    """A heap of sessions by eviction key.

    An outdated entry is removed when it becomes the first entry, or when there are too many entries.
    """

    __slots__ = ("_heap", "_sessions")

    def __init__(self, sessions: dict[int, FetchSession]) -> None:
        self._sessions = sessions
        self._heap: list[EvictionKey] = []

    def add(self, session: FetchSession) -> None:
        """Add a session with its current key. When the key changes, the session has to be added again."""
        heappush(self._heap, session.eviction_key)
        if len(self._heap) > 2 * len(self._sessions) + _HEAP_SLACK:
            self._heap = list({eviction_key for eviction_key in self._heap if self._session(eviction_key) is not None})
            heapify(self._heap)

    def first(self) -> FetchSession | None:
        heap = self._heap
        while heap:
            session = self._session(heap[0])
            if session is not None:
                return session
            heappop(heap)
        return None

    def _session(self, eviction_key: EvictionKey) -> FetchSession | None:
        session = self._sessions.get(eviction_key.session_id)
        return session if session is not None and session.eviction_key == eviction_key else None
