"""GET /overview: key figures of the node, and samples of its load in the last ten minutes."""

from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from kwire.web.console.node_load import Sample
from kwire.web.console.samples import INTERVAL_MS, WINDOW_MS
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.route import Route
from kwire.web.services import MonitoringServices, OverviewServices


class OverviewQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[int, msgspec.Meta(description="Only samples after this time, in milliseconds since 1970.")] = 0


class Overview(msgspec.Struct, kw_only=True):
    """The state of the node. `now` is the newest sample; null in the first seconds after the start."""

    time_ms: int
    is_ready: bool
    topics: Annotated[int, msgspec.Meta(description="Without internal topics, as for `partitions`.")]
    partitions: int
    internal_topics: int
    groups: Annotated[int | None, msgspec.Meta(description="Null in the first seconds after the start.")]
    rooms: int
    subscribers: int
    webhooks: Annotated[int | None, msgspec.Meta(description="Null if webhooks are disabled.")]
    dead_letters: int
    warnings: Annotated[list[str], msgspec.Meta(description="What needs the attention of an operator.")]
    now: Sample | None
    interval_ms: int
    window_ms: int
    samples: Annotated[
        dict[str, list[float | None]],
        msgspec.Meta(description="The samples, oldest first: one list for each field of `now`."),
    ]


async def show(services: OverviewServices, request: web.Request) -> web.Response:
    query = query_of(request, OverviewQuery)
    monitoring, sampler = services.monitoring, services.sampler
    counts, rooms = monitoring.storage.topics.catalogue.counts(), monitoring.rooms
    webhooks = monitoring.webhook_statistics() if monitoring.webhook_statistics is not None else None
    answer = json_answer(
        Overview(
            time_ms=monitoring.port.clock.now_ms(),
            is_ready=monitoring.is_ready(),
            topics=counts.topics,
            partitions=counts.partitions,
            internal_topics=counts.internal_topics,
            groups=services.load.group_count,
            rooms=rooms.rooms.count,
            subscribers=len(rooms.subscriptions),
            webhooks=None if webhooks is None else sum(webhooks.states.values()),
            dead_letters=0 if webhooks is None else webhooks.dead_letters,
            warnings=_warnings(monitoring),
            now=sampler.ring.newest,
            interval_ms=INTERVAL_MS,
            window_ms=WINDOW_MS,
            samples=sampler.ring.columns(query.after),
        )
    )
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


def _warnings(monitoring: MonitoringServices) -> list[str]:
    storage = monitoring.storage
    found = []
    if offline := storage.offline_directories():
        found.append(f"{offline} data directories could not be opened; their partitions are not served.")
    if partitions := len(storage.topics.offline_partitions):
        found.append(f"{partitions} partitions are not served: their folder or metadata is lost.")
    if failures := storage.maintenance.syncs.failures:
        found.append(f"{failures} syncs have failed; their logs accept no records until the next start.")
    return found


ROUTES: tuple[Route[OverviewServices], ...] = (
    Route(
        "GET",
        "/overview",
        show,
        summary="Key figures and the load of the last ten minutes",
        description="The numbers of topics, groups, rooms and webhooks, and a sample of the load every two seconds: "
        "traffic, requests, latency, lag, connections, disk and memory. With `after`, a client that asks regularly "
        "gets only the samples it does not have.",
        tag="admin",
        query=OverviewQuery,
        answers={200: Overview},
        needs=(DESCRIBE_CLUSTER,),
    ),
)
