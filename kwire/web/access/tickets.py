"""POST /tickets: a ticket for one stream, for browsers. `requests/tickets.py` describes tickets."""

from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from kwire.web.answers.errors import Refusal
from kwire.web.needs import AUTHENTICATED
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer
from kwire.web.requests.tickets import TICKET_SECONDS
from kwire.web.route import Route
from kwire.web.services import AccessServices


class IssuedTicket(msgspec.Struct, kw_only=True):
    ticket: str
    expires_in_secs: Annotated[int, msgspec.Meta(description="The stream must be requested within this time.")]


async def create_ticket(services: AccessServices, request: web.Request) -> web.Response:
    if services.authenticator is None:
        raise Refusal(
            "tickets are not needed: kwire.http.authentication is not set", code="AuthenticationDisabled", status=403
        )
    access = access_of(request)
    ticket = services.authenticator.tickets.issue(access.principal, access.login)
    answer = json_answer(IssuedTicket(ticket=ticket, expires_in_secs=TICKET_SECONDS), 201)
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


ROUTES: tuple[Route[AccessServices], ...] = (
    Route(
        "POST",
        "/tickets",
        create_ticket,
        summary="Get a ticket for one stream",
        description=(
            "Scripts in browsers cannot set the header Authorization of a WebSocket or an EventSource. They send a "
            "ticket instead: as the query parameter `ticket` of a route that streams, or as the WebSocket subprotocol "
            "`kwire.ticket.TICKET`. A ticket is valid once."
        ),
        tag="node",
        answers={201: IssuedTicket},
        needs=AUTHENTICATED,
    ),
)
