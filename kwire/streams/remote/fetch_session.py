"""FetchSession: an incremental fetch session with one broker (KIP-227). No I/O.

A request names only the partitions that were added or whose offset has changed; the broker remembers the others. A
broker that has no room for a session answers with session id 0. Then every request names all partitions.
"""

from typing import Final, NamedTuple

from kwire.errors import ErrorCode

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
# The epoch of requests without a session.
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF

# The session is over, and the next request begins another one.
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class FetchKey(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: bytes
    partition: int


class FetchPosition(NamedTuple):
    """Where to read, and the leader epoch that the client knows."""

    offset: int
    leader_epoch: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    partitions: dict[FetchKey, FetchPosition]
    forgotten: list[FetchKey]


class FetchSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        # What the client wants, and what the broker knows once it has answered the last request.
        self._wanted: dict[FetchKey, FetchPosition] = {}
        self._known: dict[FetchKey, FetchPosition] = {}
        # The partitions for which the two differ.
        self._changed: dict[FetchKey, None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: FetchKey, position: FetchPosition) -> None:
        """Fetch a partition from an offset, with the next request."""
        self._wanted[key] = position
        self._changed[key] = None

    def remove(self, key: FetchKey) -> None:
        """Do not fetch a partition any more."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def asked(self, key: FetchKey) -> FetchPosition | None:
        """Return the position of a partition in the last request; None if the broker does not fetch it."""
        return self._known.get(key)

    def request(self) -> SessionRequest:
        """Return the next request."""
        wanted, known = self._wanted, self._known
        if self._id == NO_SESSION:
            self._epoch = FIRST_EPOCH
            known = self._known = wanted.copy()
            self._changed.clear()
            return SessionRequest(NO_SESSION, FIRST_EPOCH, known.copy(), [])
        partitions, forgotten = {}, []
        for key in self._changed:
            position = wanted.get(key)
            if position is None:
                if known.pop(key, None) is not None:
                    forgotten.append(key)
            elif known.get(key) != position:
                known[key] = partitions[key] = position
        self._changed.clear()
        return SessionRequest(self._id, self._epoch, partitions, forgotten)

    def answered(self, code: int, session_id: int) -> bool:
        """The broker has answered. Return False if the response says only that the session is over."""
        if code in SESSION_ERRORS:
            self.reset()
            return False
        if not code:
            self._id = session_id
            # After the largest epoch follows 1: 0 would begin a session.
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def reset(self) -> None:
        """The session is over: the next request begins another one."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known = {}
