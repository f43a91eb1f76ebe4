"""GET /overview of a bridge: key figures, and samples of its load in the last ten minutes."""

from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from kwire.web.bridge.load import BridgeSample
from kwire.web.bridge.services import BridgeMonitoring, BridgeOverviewServices
from kwire.web.console.overview import OverviewQuery
from kwire.web.console.samples import INTERVAL_MS, WINDOW_MS
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.route import Route


class BridgeOverview(msgspec.Struct, kw_only=True):
    """The state of the bridge. `now` is the newest sample; null in the first seconds after the start."""

    time_ms: int
    is_ready: bool
    rooms: int
    subscribers: int
    warnings: Annotated[list[str], msgspec.Meta(description="What needs the attention of an operator.")]
    now: BridgeSample | None
    interval_ms: int
    window_ms: int
    samples: Annotated[
        dict[str, list[float | None]],
        msgspec.Meta(description="The samples, oldest first: one list for each field of `now`."),
    ]


def warnings_of(monitoring: BridgeMonitoring) -> list[str]:
    warnings = [] if monitoring.upstream().connections else ["The cluster cannot be reached."]
    if problem := monitoring.webhook_problem():
        warnings.append(f"Webhooks are not delivered: {problem}.")
    if problem := monitoring.event_store().problem:
        warnings.append(f"The event store is not served: {problem}.")
    return warnings


async def show(services: BridgeOverviewServices, request: web.Request) -> web.Response:
    query = query_of(request, OverviewQuery)
    monitoring, ring = services.monitoring, services.sampler.ring
    rooms = monitoring.rooms
    answer = json_answer(
        BridgeOverview(
            time_ms=monitoring.port.clock.now_ms(),
            is_ready=monitoring.is_ready(),
            rooms=rooms.rooms.count,
            subscribers=len(rooms.subscriptions),
            warnings=warnings_of(monitoring),
            now=ring.newest,
            interval_ms=INTERVAL_MS,
            window_ms=WINDOW_MS,
            samples=ring.columns(query.after),
        )
    )
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


ROUTES: tuple[Route[BridgeOverviewServices], ...] = (
    Route(
        "GET",
        "/overview",
        show,
        summary="Key figures and the load of the last ten minutes",
        description="The numbers of rooms and subscribers, and a sample of the load every two seconds: traffic with "
        "the cluster and with streams, requests, latency, connections and memory. With `after`, a client that asks "
        "regularly gets only the samples it does not have.",
        tag="admin",
        query=OverviewQuery,
        answers={200: BridgeOverview},
        needs=(DESCRIBE_CLUSTER,),
    ),
)
