"""Authentication of HTTP requests: who sent a request. Used if `kwire.http.authentication` is set.

- `basic`: the header Authorization with the name and the password of a SCRAM user, the same user as on the Kafka port
- `key`: the header Authorization with the token of a key (Bearer), or with its id and secret (Basic)
- `certificate`: the client certificate of the TLS connection
- a ticket, for streams only (`tickets.py`)
- the cookie of a browser session (`kwire/web/access/session_store.py`)

A request without credentials is refused. If a request has a header Authorization, only this header decides: a valid
ticket, session or certificate does not make up for a wrong password. No other header is considered.
"""

import asyncio
import binascii
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from aiohttp import hdrs, web

from kwire.access.audit.entries import HTTP, NO_AUDIT, Audit
from kwire.access.keys.key_format import TOKEN_LENGTH, Credentials, is_key_id, parse_token
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import Attempt, LoginLimits, TooManyFailedLogins
from kwire.access.principal import USER, Principal
from kwire.clock import Clock
from kwire.config.http_api import BASIC, CERTIFICATE, KEY
from kwire.web.access.session_cookie import check_session_origin, session_token_of
from kwire.web.access.session_store import Session, Sessions
from kwire.web.answers.errors import Refusal, Unauthorized
from kwire.web.requests.access import PERMANENT, Login
from kwire.web.requests.tickets import TAKES_TICKET, Tickets, ticket_of

# Longer names and passwords are refused without a check, because checking takes time proportional to the length.
NAME_LENGTH_MAX = 256
PASSWORD_LENGTH_MAX = 1024
# The delay of the answer to a failed login, and the maximum number of answers that wait. Further ones are not delayed.
FAILURE_DELAY_SECONDS = 0.5
DELAYED_MAX = 1_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CHALLENGES = {
    BASIC: 'Basic realm="kwire", charset="UTF-8"',
    KEY: 'Bearer realm="kwire"',
    CERTIFICATE: 'Certificate realm="kwire"',
}
# The challenge for scripts in browsers instead of Basic, for which browsers would open a dialog.
_SESSION_CHALLENGE = 'Session realm="kwire"'


class Users(Protocol):
    """The SCRAM users, as far as the HTTP port needs them."""

    def __contains__(self, name: str) -> bool: ...

    async def verify(self, name: str, password: str, host: str = "") -> bool:
        """Return whether the password is the user's. Takes as long for an unknown user, and does not block the loop."""
        ...

    def listen(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call `listener` after each change with the names of the users that were changed or deleted."""
        ...


# Returns the principal of the client certificate of a connection, None if it has none.
CertificatePrincipal = Callable[[asyncio.BaseTransport], Principal | None]


class Identity(NamedTuple):
    principal: Principal
    login: Login


class UserLogin:
    """The login of a SCRAM user. It ends when the user is deleted or gets other credentials."""

    __slots__ = ("__weakref__", "revision")

    end_reason = "the user was deleted or changed"

    def __init__(self) -> None:
        self.revision = 0

    def is_valid(self) -> bool:
        return not self.revision

    def end(self) -> None:
        self.revision = 1


class Authenticator:
    """Identifies the senders of requests. `users`, `certificate_principal` and `keys` are None if the method is off.

    `limits` are shared with the Kafka port. Without them, this port has its own.
    """

    def __init__(
        self,
        clock: Clock,
        users: Users | None,
        certificate_principal: CertificatePrincipal | None,
        audit: Audit = NO_AUDIT,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        keys: Keys | None = None,
        limits: LoginLimits | None = None,
    ) -> None:
        if users is None and certificate_principal is None and keys is None:
            raise ValueError("no method of authentication is configured")
        self._users = users
        self._keys = keys
        self._audit = audit
        self._certificate_principal = certificate_principal
        self._sleep = sleep
        self.methods = tuple(
            method
            for method, provider in ((BASIC, users), (KEY, keys), (CERTIFICATE, certificate_principal))
            if provider is not None
        )
        self._challenges = ", ".join(_CHALLENGES[one] for one in self.methods)
        self._script_challenges = ", ".join(
            [_SESSION_CHALLENGE, *(_CHALLENGES[one] for one in self.methods if one != BASIC)]
        )
        self.tickets = Tickets(clock)
        self.sessions = Sessions(clock)
        self.limits = LoginLimits(clock) if limits is None else limits
        self._delayed_count = 0
        # The logins in use, by user name. All requests and streams of a user share one.
        self._logins: WeakValueDictionary[str, UserLogin] = WeakValueDictionary()
        if users is not None:
            users.listen(self._end_logins)

    async def identify(self, request: web.Request, *, is_streaming: bool) -> Identity:
        """Return who sent the request. Raises Unauthorized, or a Refusal with status 429 after too many failures."""
        try:
            return await self._identify(request, is_streaming)
        except Unauthorized as error:
            challenges = self._script_challenges if _is_from_script(request) else self._challenges
            error.headers = {hdrs.WWW_AUTHENTICATE: challenges}
            raise

    async def identify_if_given(self, request: web.Request) -> Identity | None:
        """As `identify`, but return None for a request without credentials or with the cookie of an ended session."""
        if hdrs.AUTHORIZATION in request.headers:
            return await self.identify(request, is_streaming=False)
        return self._by_session(request) or self._by_certificate(request)

    async def _identify(self, request: web.Request, is_streaming: bool) -> Identity:
        if is_streaming:
            request[TAKES_TICKET] = True
        if self._users is not None or self._keys is not None:
            given = request.headers.getall(hdrs.AUTHORIZATION, ())
            if len(given) > 1:
                raise Unauthorized("the request has more than one header Authorization")
            if given:
                return await self._by_header(given[0], request.remote or "")
        if is_streaming:
            ticket = ticket_of(request)
            if ticket is not None:
                return self._by_ticket(ticket)
        identity = self._by_session(request) or self._by_certificate(request)
        if identity is None:
            has_cookie = session_token_of(request) is not None
            raise Unauthorized(Session.end_reason if has_cookie else "this request needs credentials")
        return identity

    def _by_session(self, request: web.Request) -> Identity | None:
        if hdrs.COOKIE not in request.headers:
            return None
        token = session_token_of(request)
        if token is None:
            return None
        check_session_origin(request)
        session = self.sessions.find(token)
        return None if session is None else Identity(session.principal, session)

    def _by_certificate(self, request: web.Request) -> Identity | None:
        if self._certificate_principal is None or request.transport is None:
            return None
        principal = self._certificate_principal(request.transport)
        if principal is None:
            return None
        self._audit.login(principal, request.remote or "", HTTP, CERTIFICATE)
        return Identity(principal, PERMANENT)

    async def _by_header(self, header: str, host: str) -> Identity:
        scheme, _, text = header.partition(" ")
        if self._keys is not None and scheme.lower() != "basic":
            if scheme.lower() != "bearer":
                schemes = "scheme Bearer" if self._users is None else "schemes Basic and Bearer"
                raise Unauthorized(f"this port supports only the {schemes} in the header Authorization")
            return await self._by_token(self._keys, text.strip(), host)
        name, password = parse_basic(header)
        if self._keys is not None and is_key_id(name):
            return await self._by_key(self._keys, Credentials(name, password), host)
        if self._users is None:
            raise Unauthorized("this port supports only keys: send the token of a key with the scheme Bearer")
        return await self._by_password(self._users, name, password, host)

    async def _by_token(self, keys: Keys, token: str, host: str) -> Identity:
        credentials = parse_token(token)
        if credentials is None:
            # It counts as a failed login, but there is nothing to compare it with.
            credentials = Credentials("", token[:TOKEN_LENGTH])
        return await self._by_key(keys, credentials, host)

    async def _by_key(self, keys: Keys, credentials: Credentials, host: str) -> Identity:
        login = keys.log_in(credentials)
        if login is None:
            # Only failures count. A secret of 256 bits cannot be guessed, and a valid key must work beside failures.
            self.limits.end(self._begin(host, *credentials), is_success=False)
            known = credentials.id if keys.get(credentials.id) is not None else None
            self._audit.login_failed(known, host, HTTP, KEY, "the key is not valid")
            await self._delay()
            raise Unauthorized(
                "the key is not valid: it is unknown, was revoked or has expired, or its secret is wrong"
            )
        self._audit.login(login.principal, host, HTTP, KEY)
        return Identity(login.principal, login)

    async def _by_password(self, users: Users, name: str, password: str, host: str) -> Identity:
        attempt = self._begin(host, name, password)
        try:
            # `verify` also accepts other spellings of a name (SASLprep). They would be other principals in ACLs.
            is_valid = await users.verify(name, password, host) and name in users
        except BaseException:
            self.limits.cancel(attempt)
            raise
        self.limits.end(attempt, is_valid)
        if not is_valid:
            known = name if name in users else None
            self._audit.login_failed(known, host, HTTP, BASIC, "the user name or the password is wrong")
            await self._delay()
            raise Unauthorized("the user name or the password is wrong")
        login = self._logins.get(name)
        if login is None:
            login = self._logins[name] = UserLogin()
        principal = Principal(USER, name)
        self._audit.login(principal, host, HTTP, BASIC)
        return Identity(principal, login)

    def _begin(self, host: str, name: str, password: str) -> Attempt:
        try:
            return self.limits.begin(host, name, password)
        except TooManyFailedLogins:
            raise Refusal(
                "too many failed logins from this address: try again later", code="TooManyFailedLogins", status=429
            ) from None

    def _end_logins(self, names: frozenset[str]) -> None:
        for name in names:
            login = self._logins.pop(name, None)
            if login is not None:
                login.end()

    def _by_ticket(self, text: str) -> Identity:
        ticket = self.tickets.redeem(text)
        if ticket is None:
            raise Unauthorized("the ticket is not valid: it was used, has expired, or never existed")
        return Identity(ticket.principal, ticket.login)

    async def _delay(self) -> None:
        if self._delayed_count >= DELAYED_MAX:
            return
        self._delayed_count += 1
        try:
            await self._sleep(FAILURE_DELAY_SECONDS)
        finally:
            self._delayed_count -= 1


def _is_from_script(request: web.Request) -> bool:
    return request.headers.get("Sec-Fetch-Dest") in ("empty", "websocket") or "X-Requested-With" in request.headers


def authenticator_of(
    methods: Collection[str],
    clock: Clock,
    users: Users,
    certificate_principal: CertificatePrincipal,
    keys: Keys,
    audit: Audit,
    limits: LoginLimits,
) -> Authenticator | None:
    """Return the authenticator with the methods of `kwire.http.authentication`; None if there are none."""
    if not methods:
        return None
    return Authenticator(
        clock,
        users if BASIC in methods else None,
        certificate_principal if CERTIFICATE in methods else None,
        audit,
        keys=keys if KEY in methods else None,
        limits=limits,
    )


def parse_basic(header: str) -> tuple[str, str]:
    """Return the name and the password in a header Authorization (RFC 7617). Raises Unauthorized.

    The messages do not quote the header: it may contain a password.
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Unauthorized("this port supports only the scheme Basic in the header Authorization")
    try:
        text = b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        raise Unauthorized(
            "the header Authorization is malformed: expected Basic and base64 of name:password"
        ) from None
    name, colon, password = text.partition(":")
    if not name or not colon:
        raise Unauthorized("the header Authorization is malformed: expected base64 of name:password")
    if len(name) > NAME_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX or _CONTROL.search(text):
        raise Unauthorized("the user name or the password is wrong")
    return name, password
