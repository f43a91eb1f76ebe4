"""The routes of a bridge: those of the server that need no log of this process, and answers that name the others.

The document of the API has only the served routes. A request for another route of the server has the status 404 and a
code of its own, so that clients see the difference from a path that does not exist.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from aiohttp import web

from kwire.web.access import keys, sessions, tickets, users
from kwire.web.answers.errors import Refusal
from kwire.web.bridge import kafka_requests, metrics, overview, topic_list
from kwire.web.bridge.services import (
    BridgeMonitoring,
    BridgeOverviewServices,
    BridgeServices,
    BridgeTopicListServices,
)
from kwire.web.console import files as console_files
from kwire.web.db_events import publish as db_publish
from kwire.web.db_events import slots as db_slots
from kwire.web.db_events import subscribe as db_subscribe
from kwire.web.documentation import about, openapi, pages
from kwire.web.groups import consumer_groups, groups
from kwire.web.groups import stream as group_stream
from kwire.web.monitoring import health
from kwire.web.needs import PUBLIC
from kwire.web.rooms import events as room_events
from kwire.web.rooms import post_command, rooms, subscribers
from kwire.web.rooms import subscribe as room_subscribe
from kwire.web.route import Route
from kwire.web.routes import EVENT_STORE_ROUTES, ROUTES, TOPIC_ROUTES, WEBHOOK_ROUTES, BoundHandle, RouteGroup
from kwire.web.services import (
    AboutServices,
    AccessServices,
    DbEventServices,
    EventStoreServices,
    GroupServices,
    KafkaRequestServices,
    RoomServices,
    TopicServices,
    WebhookServices,
)

DOCUMENTS = openapi.routes_of(lambda: BRIDGE_ROUTES)
BRIDGE_MONITORING_ROUTES: tuple[Route[BridgeMonitoring], ...] = (*health.ROUTES, *metrics.ROUTES)

_GROUPS: tuple[RouteGroup[BridgeServices, Any], ...] = (
    RouteGroup[BridgeServices, BridgeMonitoring](lambda web: web.monitoring, BRIDGE_MONITORING_ROUTES),
    RouteGroup[BridgeServices, RoomServices](
        lambda web: web.rooms,
        (
            *room_events.ROUTES,
            *room_subscribe.ROUTES,
            *rooms.ROUTES,
            *subscribers.ROUTES,
            *post_command.ROUTES,
        ),
    ),
    RouteGroup[BridgeServices, DbEventServices](
        lambda web: web.db_events, (*db_publish.ROUTES, *db_subscribe.ROUTES, *db_slots.ROUTES)
    ),
    RouteGroup[BridgeServices, GroupServices](
        lambda web: web.groups, (*consumer_groups.ROUTES, *group_stream.ROUTES, *groups.ROUTES)
    ),
    RouteGroup[BridgeServices, EventStoreServices](lambda web: web.event_store, EVENT_STORE_ROUTES),
    RouteGroup[BridgeServices, WebhookServices](lambda web: web.webhooks, WEBHOOK_ROUTES),
    RouteGroup[BridgeServices, TopicServices](lambda web: web.topics, TOPIC_ROUTES),
    RouteGroup[BridgeServices, AccessServices](
        lambda web: web.access, (*tickets.ROUTES, *sessions.ROUTES, *keys.ROUTES, *users.ROUTES)
    ),
    RouteGroup[BridgeServices, KafkaRequestServices](lambda web: web.kafka_requests, kafka_requests.ROUTES),
    RouteGroup[BridgeServices, BridgeOverviewServices](lambda web: web.overview, overview.ROUTES),
    RouteGroup[BridgeServices, BridgeTopicListServices](lambda web: web.topic_list, topic_list.ROUTES),
    RouteGroup[BridgeServices, AboutServices](lambda web: AboutServices(web.upstream, _not_served()), about.ROUTES),
    RouteGroup[BridgeServices, object](lambda web: None, (*DOCUMENTS, *pages.ROUTES, *console_files.ROUTES)),
)

BRIDGE_ROUTES: tuple[Route[Any], ...] = tuple(route for group in _GROUPS for route in group.routes)


def bound_bridge_routes(services: BridgeServices) -> Iterator[tuple[Route[Any], BoundHandle]]:
    """Generate every route of the server, in order. The handlers of routes that are not served refuse the request."""
    for group in _GROUPS:
        taken = group.services_of(services)
        for route in group.routes:
            yield route, partial(route.handle, taken)
    for route in _refused_routes():
        # Its needs cannot be decided here, because its resources do not exist.
        refused = route._replace(needs=PUBLIC if route.needs == PUBLIC else (), is_streaming=False, charges=None)
        yield refused, partial(_refuse, route)


def _refused_routes() -> list[Route[Any]]:
    served = {(route.method, route.path) for route in BRIDGE_ROUTES}
    return [route for route in ROUTES if (route.method, route.path) not in served]


def _not_served() -> list[str]:
    return [f"{route.method} {openapi.path_of(route)}" for route in _refused_routes() if not route.is_hidden]


async def _refuse(route: Route[Any], request: web.Request) -> web.StreamResponse:
    raise Refusal(
        f"a bridge does not serve {route.method} {route.path}; /openapi.json lists all paths of this one",
        code="NotServedByBridge",
        status=404,
    )
