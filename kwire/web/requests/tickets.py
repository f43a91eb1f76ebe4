"""Tickets: credentials for one stream, for browsers.

A script in a browser cannot set the header Authorization of a WebSocket or of an EventSource. It requests a ticket
(`POST /tickets`) and sends it as `?ticket=TICKET`, or as the WebSocket subprotocol `kwire.ticket.TICKET`. A ticket is
valid once, for a short time, and only for streams, so that a ticket in the log of a proxy is worthless. The server
keeps only hashes of tickets. A ticket has 256 random bits, so a plain SHA-256 suffices.
"""

import re
import secrets
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from aiohttp import hdrs, web

from kwire.access.principal import Principal
from kwire.clock import Clock
from kwire.web.answers.errors import Refusal, Unauthorized
from kwire.web.requests.access import Login

TICKET_BYTES = 32
TICKET_SECONDS = 30
# The maximum number of tickets that are neither used nor expired.
TICKETS_PER_PRINCIPAL_MAX = 100
TICKETS_MAX = 10_000

TICKET_PARAMETER = "ticket"
SUBPROTOCOL_PREFIX = "kwire.ticket."
_SUBPROTOCOL = re.compile(r"kwire\.ticket\.[A-Za-z0-9_-]{1,64}")

# Set on requests for streams if authentication is on: then the query may have the parameter `ticket`.
TAKES_TICKET = web.RequestKey("kwire.takes_ticket", bool)


class Ticket(NamedTuple):
    """The identity that a ticket stands for."""

    principal: Principal
    login: Login
    expires_at: float


class Tickets:
    """The open tickets, by their hashes, oldest first. All have the same lifetime, so they expire in this order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[bytes, Ticket] = {}
        self._counts: Counter[Principal] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def issue(self, principal: Principal, login: Login) -> str:
        """Return a new ticket. Raises a Refusal with status 429 if there are too many open ones."""
        self._remove_expired()
        if self._counts[principal] >= TICKETS_PER_PRINCIPAL_MAX or len(self._open) >= TICKETS_MAX:
            raise Refusal(
                f"too many tickets are not used yet: they expire after {TICKET_SECONDS} seconds",
                code="TooManyTickets",
                status=429,
            )
        text = secrets.token_urlsafe(TICKET_BYTES)
        self._open[_hash(text)] = Ticket(principal, login, self._clock.monotonic() + TICKET_SECONDS)
        self._counts[principal] += 1
        return text

    def redeem(self, text: str) -> Ticket | None:
        """Return the identity of a ticket, and invalidate the ticket. None if it is unknown, used or expired."""
        self._remove_expired()
        ticket = self._open.pop(_hash(text), None)
        if ticket is None:
            return None
        self._uncount(ticket.principal)
        return ticket if ticket.login.is_valid() else None

    def _remove_expired(self) -> None:
        now = self._clock.monotonic()
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].expires_at > now:
                return
            self._uncount(self._open.pop(oldest).principal)

    def _uncount(self, principal: Principal) -> None:
        self._counts[principal] -= 1
        if not self._counts[principal]:
            del self._counts[principal]


def ticket_of(request: web.Request) -> str | None:
    """Return the ticket in the request for a stream, None if it has none. Raises Unauthorized if it has several."""
    found = [*request.rel_url.query.getall(TICKET_PARAMETER, ())]
    found += [one.removeprefix(SUBPROTOCOL_PREFIX) for one in _ticket_subprotocols(request)]
    if len(found) > 1:
        raise Unauthorized("the request has more than one ticket")
    return found[0] if found else None


def selected_subprotocol(request: web.Request) -> str | None:
    """Return the subprotocol with a ticket, which the answer to the handshake must name: otherwise browsers close the
    connection."""
    return next(_ticket_subprotocols(request), None)


def _ticket_subprotocols(request: web.Request) -> Iterator[str]:
    for header in request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()):
        for one in header.split(","):
            if _SUBPROTOCOL.fullmatch(one.strip()):
                yield one.strip()


def _hash(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
