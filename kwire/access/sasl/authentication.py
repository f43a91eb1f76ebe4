"""The login of one connection: which requests are allowed, the exchange of tokens, and re-authentication (KIP-368).

A connection starts with ApiVersions and SaslHandshake, continues with the tokens of the mechanism, and is then logged
in, or failed. If the listener limits the session (`connections.max.reauth.ms`), the client repeats handshake and tokens
before the end of the session, with the same mechanism and as the same user. After the end of the session, every other
request closes the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from time import perf_counter
from typing import NamedTuple, NoReturn

from kwire.access.keys.key_login import KeyLogin
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import Attempt, TooManyFailedLogins
from kwire.access.principal import Principal
from kwire.access.sasl.login_queue import LoginQueue
from kwire.access.sasl.mechanism import PLAIN, TOKEN_BYTES_MAX, Admit, AuthenticationFailed, Exchange
from kwire.access.sasl.plain import PlainExchange
from kwire.access.sasl.scram import ScramExchange
from kwire.access.users.scram_credential import ScramMechanism
from kwire.access.users.users import Users
from kwire.errors import ErrorCode
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE

# A connection that is not logged in after this time is closed. The time begins anew with a re-authentication.
LOGIN_SECONDS_MAX = 10.0
# The maximum number of requests of one login: ApiVersions, SaslHandshake, and the tokens.
LOGIN_REQUESTS_MAX = 10
# The minimum time between two re-authentications, as in Kafka.
REAUTHENTICATION_SECONDS_MIN = 1.0


class SaslPolicy(NamedTuple):
    """The settings of SASL that apply to a connection."""

    mechanisms: tuple[str, ...]
    session_ms_max: int
    failure_delay_ms: int


class LoginStep(NamedTuple):
    """The server's answer to a token. The lifetime is 0 if the login is not complete or the session has no end."""

    token: bytes
    session_lifetime_ms: int = 0


class SaslFailure(Exception):
    """The login has failed. The connection is closed after the client got the error."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class IllegalRequest(Exception):
    """A request that is not allowed at this point of the login, or not from this address now.

    The connection is closed without an answer.
    """


class _State(Enum):
    HANDSHAKE = auto()
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


class Authentication:
    """The login of one connection. It does no I/O.

    `on_login` is called with the principal when the client has logged in, or has authenticated again. `on_failure` is
    called with the user and the reason when the login has failed. The user is None if the client named none that
    exists: any other name may be a password, so it is never reported.
    """

    __slots__ = ("_attempt", "_exchange", "_host", "_is_raw", "_keys", "_now", "_on_failure", "_on_login", "_policy",
                 "_queue", "_request_count", "_sleep", "_started_at", "_state", "_users", "deadline", "expires_at",
                 "key_login", "mechanism", "principal")  # fmt: skip

    def __init__(
        self,
        users: Users,
        queue: LoginQueue,
        policy: SaslPolicy,
        on_login: Callable[[Principal], None],
        on_failure: Callable[[str | None, str], None],
        now: Callable[[], float] = perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        host: str = "",
        keys: Keys | None = None,
    ) -> None:
        """`host` is the address of the client."""
        self._users = users
        self._queue = queue
        self._keys = keys
        self._host = host
        self._policy = policy
        self._on_login = on_login
        self._on_failure = on_failure
        self._now = now
        self._sleep = sleep
        self._state = _State.HANDSHAKE
        self._exchange: Exchange | None = None
        # The login that is being checked.
        self._attempt: Attempt | None = None
        self._is_raw = False
        self._request_count = 0
        self._started_at = now()
        # The time until which the client must have logged in. It is None while no login is under way.
        self.deadline: float | None = self._started_at + LOGIN_SECONDS_MAX
        # The end of the session; None before the first login, and if the session has no end.
        self.expires_at: float | None = None
        # The mechanism of the first handshake, and the principal of the first login. They never change.
        self.mechanism: str | None = None
        self.principal: Principal | None = None
        # The login of a client with a key; None for a user.
        self.key_login: KeyLogin | None = None

    def close(self) -> None:
        """Forget `on_login` and `on_failure`. Called when the connection has ended. A begun login counts as failed."""
        self._on_login = self._on_failure = _ignore
        if self._attempt is not None:
            self._end_attempt(is_success=False)
        self._state, self._exchange = _State.FAILED, None

    @property
    def is_done(self) -> bool:
        """Whether the client is logged in, and no re-authentication is under way."""
        return self._state is _State.DONE

    @property
    def is_failed(self) -> bool:
        return self._state is _State.FAILED

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the client may use."""
        return self._policy.mechanisms

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a request header, as after version 0 of SaslHandshake."""
        return self._is_raw and self._state is _State.TOKENS

    def check_request(self, api_key: int) -> None:
        """Raise IllegalRequest if a request of this API is not allowed now."""
        if self._state is _State.DONE:
            if self.expires_at is not None and self._now() > self.expires_at and api_key != SASL_HANDSHAKE.key:
                raise IllegalRequest("the session has expired and the client has not authenticated again")
            return
        self._request_count += 1
        if self._state is _State.HANDSHAKE:
            is_allowed = api_key in (API_VERSIONS.key, SASL_HANDSHAKE.key)
        else:
            is_allowed = self._state is _State.TOKENS and api_key == SASL_AUTHENTICATE.key
        if not is_allowed or self._request_count > LOGIN_REQUESTS_MAX:
            self._end_attempt(is_success=False)
            raise IllegalRequest(f"a request of API {api_key} is not allowed before the login is complete")

    async def handshake(self, mechanism: str, *, is_raw: bool) -> tuple[str, ...]:
        """Select the mechanism, and return all mechanisms. Raises SaslFailure.

        `is_raw` says that the tokens will be sent without request headers.
        """
        now = self._now()
        if self._state is _State.DONE:
            if self.expires_at is None or now - self._started_at < REAUTHENTICATION_SECONDS_MIN:
                raise SaslFailure(ErrorCode.ILLEGAL_SASL_STATE, "The client is logged in already.")
            self._started_at = now
            self._request_count = 0
            self.deadline = now + LOGIN_SECONDS_MAX
        elif self._state is not _State.HANDSHAKE:
            raise SaslFailure(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake is not expected now.")
        if mechanism not in self._policy.mechanisms:
            await self._fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "The SASL mechanism is not enabled.")
        # A client that wants to authenticate again with another mechanism gets the error with its first token.
        self._exchange = (
            _new_exchange(mechanism, self._users, self._keys, self._admit, self._host)
            if self.mechanism in (None, mechanism)
            else None
        )
        self.mechanism = self.mechanism or mechanism
        self._is_raw = is_raw
        self._state = _State.TOKENS
        return self._policy.mechanisms

    async def authenticate(self, token: bytes | None) -> LoginStep:
        """Take a token of the client. Raises SaslFailure or IllegalRequest. A token that is too long is None."""
        exchange = self._exchange
        if self._state is not _State.TOKENS:
            raise SaslFailure(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate is not expected now.")
        if exchange is None:
            await self._refuse(f"A client that used SASL mechanism {self.mechanism} cannot change it")
        if token is None or len(token) > TOKEN_BYTES_MAX:
            await self._refuse(f"A token has at most {TOKEN_BYTES_MAX} bytes")
        try:
            answer = await exchange.step(token)
        except AuthenticationFailed as failure:
            await self._refuse(str(failure))
        except asyncio.CancelledError:
            self._state = _State.FAILED
            raise
        principal = exchange.principal
        if principal is None:
            return LoginStep(answer)
        if self.principal not in (None, principal):
            await self._refuse("A client cannot become another principal by authenticating again")
        self.key_login = exchange.key_login
        return LoginStep(answer, self._log_in(principal))

    async def _admit(self, user: str, *, is_known: bool = False) -> None:
        """Wait until the login may be checked. Raises IllegalRequest if too many logins of the address wait."""
        try:
            attempt = await self._queue.begin(self._host, user, is_known=is_known)
        except TooManyFailedLogins:
            self._state = _State.FAILED
            raise IllegalRequest("too many logins of this address have failed, and too many wait") from None
        if self._state is _State.FAILED:
            # The connection has ended in the meantime.
            self._queue.end(attempt, is_success=False)
            raise AuthenticationFailed("The connection has ended")
        self._attempt = attempt

    def _end_attempt(self, *, is_success: bool) -> None:
        """Count the login. A failure counts even if the user name is not known yet."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._queue.end(attempt, is_success=is_success)
        elif not is_success:
            self._queue.fail(self._host)

    def _log_in(self, principal: Principal) -> int:
        """Complete the login. Returns the lifetime of the session in milliseconds."""
        self._end_attempt(is_success=True)
        self._state, self._exchange = _State.DONE, None
        self.principal, self.deadline = principal, None
        lifetime_ms = self._policy.session_ms_max
        self.expires_at = self._now() + lifetime_ms / 1000 if lifetime_ms > 0 else None
        self._on_login(principal)
        return max(lifetime_ms, 0)

    async def _refuse(self, message: str) -> NoReturn:
        await self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, message)

    async def _fail(self, code: ErrorCode, message: str) -> NoReturn:
        """Fail after the delay that slows down the guessing of passwords. It always raises SaslFailure."""
        claimed = "" if self._exchange is None else self._exchange.claimed_user
        is_known = claimed in self._users or (self._keys is not None and self._keys.get(claimed) is not None)
        user = claimed if is_known else None
        self._state, self._exchange = _State.FAILED, None
        self._end_attempt(is_success=False)
        self._on_failure(user, message)
        await self._sleep(self._policy.failure_delay_ms / 1000)
        raise SaslFailure(code, message)


def _ignore(*_: object) -> None:
    pass


def _new_exchange(mechanism: str, users: Users, keys: Keys | None, admit: Admit, host: str) -> Exchange:
    if mechanism == PLAIN:
        return PlainExchange(users, admit, host, keys)
    (scram,) = (one for one in ScramMechanism if one.mechanism == mechanism)
    return ScramExchange(users, scram, admit=admit)
