"""The browser sessions of the HTTP port, in memory. A restart of the server ends all of them.

A session stands for the login with which it was created, and ends with this login: when the user is deleted or gets
another password, or when the key is revoked, expires or gets another secret. It also ends when no request has used it
for IDLE_SECONDS, at the age of AGE_SECONDS_MAX, and when the client logs out.

The store keeps only hashes of tokens. A token has 256 random bits, so a plain SHA-256 suffices.
"""

import secrets
from hashlib import sha256
from typing import NamedTuple

from kwire.access.principal import Principal
from kwire.clock import Clock
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import Login

TOKEN_BYTES = 32
IDLE_SECONDS = 60 * 60
AGE_SECONDS_MAX = 12 * 60 * 60
# A principal that creates more sessions loses the one that it has not used for the longest time.
SESSIONS_PER_PRINCIPAL_MAX = 100
SESSIONS_MAX = 10_000


class Session:
    """One session, as the `Login` of the requests and streams that use it."""

    __slots__ = ("_clock", "_created_at", "_is_closed", "_login", "_used_at", "principal")

    end_reason = "the session has ended: log in again"

    def __init__(self, principal: Principal, login: Login, clock: Clock) -> None:
        self.principal = principal
        self._login = login
        self._clock = clock
        self._created_at = self._used_at = clock.monotonic()
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._login.revision + self._is_over()

    @property
    def seconds_left(self) -> int:
        """The time until the session reaches its maximum age."""
        return max(0, int(self._created_at + AGE_SECONDS_MAX - self._clock.monotonic()))

    def is_valid(self) -> bool:
        return not self._is_over() and self._login.is_valid()

    def use(self) -> None:
        """Begin the idle time again."""
        self._used_at = self._clock.monotonic()

    def close(self) -> None:
        self._is_closed = True

    def _is_over(self) -> bool:
        now = self._clock.monotonic()
        return self._is_closed or now >= self._used_at + IDLE_SECONDS or now >= self._created_at + AGE_SECONDS_MAX


class NewSession(NamedTuple):
    """A new session with its token, which is not stored."""

    token: str
    session: Session


class Sessions:
    """The sessions by the hashes of their tokens, the least recently used first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        # The hashes of each principal, in the same order.
        self._of_principal: dict[Principal, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, principal: Principal, login: Login) -> NewSession:
        """Create a session. Raises a Refusal with status 429 if there are too many."""
        self._remove_idle()
        own = self._of_principal.get(principal, {})
        if len(own) >= SESSIONS_PER_PRINCIPAL_MAX:
            self._remove(next(iter(own)))
        if len(self._sessions) >= SESSIONS_MAX:
            raise Refusal(
                f"there are {SESSIONS_MAX} sessions: log out, or send the header Authorization with each request",
                code="TooManySessions",
                status=429,
            )
        token = secrets.token_urlsafe(TOKEN_BYTES)
        session = Session(principal, login, self._clock)
        self._put(_hash(token), session)
        return NewSession(token, session)

    def find(self, token: str) -> Session | None:
        """Return a valid session and begin its idle time again; None if there is none with this token."""
        digest = _hash(token)
        session = self._sessions.get(digest)
        if session is None:
            return None
        self._remove(digest, is_closed=False)
        if not session.is_valid():
            session.close()
            return None
        session.use()
        self._put(digest, session)
        return session

    def end(self, token: str) -> None:
        """End the session with this token, and its streams, if it exists."""
        digest = _hash(token)
        if digest in self._sessions:
            self._remove(digest)

    def _put(self, digest: bytes, session: Session) -> None:
        self._sessions[digest] = session
        self._of_principal.setdefault(session.principal, {})[digest] = None

    def _remove(self, digest: bytes, *, is_closed: bool = True) -> None:
        session = self._sessions.pop(digest)
        own = self._of_principal[session.principal]
        del own[digest]
        if not own:
            del self._of_principal[session.principal]
        if is_closed:
            session.close()

    def _remove_idle(self) -> None:
        while self._sessions:
            digest, oldest = next(iter(self._sessions.items()))
            if oldest.is_valid():
                return
            self._remove(digest)


def _hash(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
