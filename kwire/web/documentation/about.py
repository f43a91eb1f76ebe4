"""GET /about: what answers here, a server or a bridge, and which routes of the server it does not serve.

Programs that work with both, such as the console, leave out what is not served.
"""

from typing import Annotated, Literal

import msgspec
from aiohttp import hdrs, web

from kwire import __version__
from kwire.access.acl import Operation
from kwire.web.needs import AUTHENTICATED
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer
from kwire.web.route import Route
from kwire.web.services import AboutServices


class About(msgspec.Struct, kw_only=True):
    version: str
    engine: Annotated[
        Literal["server", "bridge"],
        msgspec.Meta(description="A server has logs of its own; a bridge has them on a Kafka cluster."),
    ]
    upstream: Annotated[
        list[str] | None,
        msgspec.Meta(
            description="The addresses of the cluster of a bridge, as `HOST:PORT`. Null on a server, and for clients "
            "without DESCRIBE on the cluster."
        ),
    ]
    not_served: Annotated[
        list[str],
        msgspec.Meta(description="Routes of a server that answer with 404 here, for example `GET /webhooks`."),
    ]


async def show(services: AboutServices, request: web.Request) -> web.Response:
    may_see = access_of(request).allows_cluster(Operation.DESCRIBE)
    answer = json_answer(
        About(
            version=__version__,
            engine="server" if services.upstream is None else "bridge",
            upstream=list(services.upstream) if services.upstream is not None and may_see else None,
            not_served=list(services.not_served),
        )
    )
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


ROUTES: tuple[Route[AboutServices], ...] = (
    Route(
        "GET",
        "/about",
        show,
        summary="Whether this is a server or a bridge, and what it does not serve",
        answers={200: About},
        needs=AUTHENTICATED,
    ),
)
