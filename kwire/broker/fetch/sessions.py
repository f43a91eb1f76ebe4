"""Fetch sessions (KIP-227): what readers fetch and what they were told last, so that neither side repeats it.

A reader that names all its partitions may get a session. From then on it names only what it changes, and is told only
what has changed. Sessions are few, and a node remembers them in memory only: whoever lost one starts again with all.

Who gets a place when all are taken is Kafka's rule. A session that nobody used for a while gives way to any other.
Else a new one displaces the smallest of those that are older than that, if it is larger itself. A client that opens a
session per poll so cannot drive out those that use theirs. Kafka also has privileged sessions for followers; here no
follower exists, and a client that claims to be one (`replica_id`) gets the session of a consumer.
"""

import secrets
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from kwire.broker.partition import Partition
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError

NO_SESSION = 0
# The epochs of requests that name all they want: the last one of a session, or one that asks for a session.
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
EPOCH_MAX = SESSION_ID_MAX = 2**31 - 1

# Unused for so long, a session is stale; younger than that, it is not displaced for its size. Kafka's figure.
EVICTION_MS_MIN = 120_000
# Partitions of all sessions together, some 450 bytes each. Kafka bounds only the number of sessions.
PARTITIONS_MAX = 250_000

# Nothing was told of a partition yet, or an error: whatever it is next, it is news.
UNTOLD = -1

_HEAP_SLACK = 64

TopicKey = str | bytes


class Asked(Protocol):
    """What a reader says of one partition, in the words of the Fetch request."""

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
    """One partition of a session: what the reader asked last, and what it was told last.

    `topic` is the topic's name or its id, as in the requests of the session. `live` is the partition itself once it was
    looked up. There may be many of these, so they are small.
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

    def __init__(self, topic: TopicKey, asked: Asked) -> None:
        self.topic = topic
        self.partition = asked.partition
        self.live: Partition | None = None
        self.ask(asked)
        self.tell(UNTOLD, UNTOLD, UNTOLD)

    def ask(self, asked: Asked) -> None:
        self.current_leader_epoch = asked.current_leader_epoch
        self.fetch_offset = asked.fetch_offset
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.partition_max_bytes = asked.partition_max_bytes

    def tell(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """Remember an answer. That of an error is (UNTOLD, UNTOLD, UNTOLD), so that its end is told too."""
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset

    def is_told(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bool:
        return (
            self.high_watermark == high_watermark
            and self.last_stable_offset == last_stable_offset
            and self.log_start_offset == log_start_offset
        )


class Worth(NamedTuple):
    """What a session is worth against others; the id makes it unique."""

    size: int
    session_id: int


class FetchSession:
    """The partitions of one reader, those that had no records for longest first.

    `epoch` is that of the next request. `uses_topic_ids` says what the topics are called by, for its whole life.
    """

    __slots__ = (
        "_deletion_count",
        "created",
        "epoch",
        "is_evictable",
        "last_used",
        "partitions",
        "session_id",
        "uses_topic_ids",
        "worth",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created = self.last_used = now
        self.epoch = INITIAL_EPOCH + 1
        # What it was worth when it was used last, and whether it was old enough then to be displaced by any other.
        self.worth = Worth(0, session_id)
        self.is_evictable = False
        self.partitions: dict[tuple[TopicKey, int], CachedPartition] = {}
        self._deletion_count = 0

    def ask(self, topic: TopicKey, asked: Iterable[Asked]) -> None:
        """Add partitions of a topic, or change what is asked of them."""
        partitions = self.partitions
        for one in asked:
            key = topic, one.partition
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = CachedPartition(topic, one)
            else:
                cached.ask(one)

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.partitions.pop((topic, index), None)

    def move_to_end(self, cached: CachedPartition) -> None:
        """It had its share: when an answer is full, it should be others that are in it."""
        key = cached.topic, cached.partition
        # It may have been forgotten while the answer was made.
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = cached

    def look_up_again(self, deletion_count: int) -> None:
        """Let no partition of a topic be taken for live that was deleted since the last time."""
        if self._deletion_count != deletion_count:
            self._deletion_count = deletion_count
            for cached in self.partitions.values():
                cached.live = None


class FetchSessions:
    """All sessions of this node, the one that was used last at the end."""

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
        self._evictable = _LeastFirst(self._sessions)
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, size: int, *, uses_topic_ids: bool) -> FetchSession | None:
        """A new session, for the caller to fill with `size` partitions and to add; None if all places are taken."""
        now = self._clock.monotonic()
        return FetchSession(self._new_id(), uses_topic_ids, now) if self._make_room(size, now) else None

    def add(self, session: FetchSession) -> int:
        """Open a session that has been filled; its id, or NO_SESSION if its place was taken meanwhile."""
        now = self._clock.monotonic()
        if session.session_id in self._sessions or not self._make_room(len(session.partitions), now):
            return NO_SESSION
        self._sessions[session.session_id] = session
        self._use(session, now, is_new=True)
        return session.session_id

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """The session that a request goes on with; KafkaError if it has none, or not this way."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def advance(self, session: FetchSession) -> None:
        """A request has been taken into it: the next one has the next epoch. It is over when nothing is left in it."""
        added = len(session.partitions) - session.worth.size
        if not session.partitions:
            self.close(session.session_id)
        elif added > 0 and self.partition_count + added > self._partitions_max:
            # The reader names all its partitions then, and is answered without a session.
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
            # To the end: those that were not used for longest come first.
            self._sessions[session.session_id] = self._sessions.pop(session.session_id)
            self._use(session, self._clock.monotonic())

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.worth.size

    def _use(self, session: FetchSession, now: float, *, is_new: bool = False) -> None:
        session.last_used = now
        size = len(session.partitions)
        is_changed = is_new or session.worth.size != size
        if is_changed:
            self.partition_count += size - session.worth.size
            session.worth = Worth(size, session.session_id)
        is_old = now - session.created > self._eviction_s
        if is_old and (is_changed or not session.is_evictable):
            self._evictable.add(session)
        session.is_evictable = is_old

    def _make_room(self, size: int, now: float) -> bool:
        if size > self._partitions_max:
            return False
        if len(self._sessions) >= self._slots and not (
            self._evict_stale(now) or self._evict_lesser(Worth(size, NO_SESSION))
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

    def _evict_lesser(self, worth: Worth) -> bool:
        session = self._evictable.first()
        if session is None or worth < session.worth:
            return False
        self._evict(session)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.close(session.session_id)
        self.eviction_count += 1

    def _new_id(self) -> int:
        """Not to be guessed: whoever knows it can spoil the session."""
        while True:
            session_id = secrets.randbelow(SESSION_ID_MAX) + 1
            if session_id not in self._sessions:
                return session_id


class _LeastFirst:
    """Sessions by worth. Entries of sessions that ended or changed stay until they come up, or are too many."""

    __slots__ = ("_heap", "_sessions")

    def __init__(self, sessions: dict[int, FetchSession]) -> None:
        self._sessions = sessions
        self._heap: list[Worth] = []

    def add(self, session: FetchSession) -> None:
        """With its worth of now; a session that was added before has to be added again when that changes."""
        heappush(self._heap, session.worth)
        if len(self._heap) > 2 * len(self._sessions) + _HEAP_SLACK:
            self._heap = list({worth for worth in self._heap if self._session(worth) is not None})
            heapify(self._heap)

    def first(self) -> FetchSession | None:
        heap = self._heap
        while heap:
            session = self._session(heap[0])
            if session is not None:
                return session
            heappop(heap)
        return None

    def _session(self, worth: Worth) -> FetchSession | None:
        session = self._sessions.get(worth.session_id)
        return session if session is not None and session.worth == worth else None
