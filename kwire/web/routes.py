"""All routes of the HTTP port: the `ROUTES` of each resource module, grouped by the services that the handlers take."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from aiohttp import web

from kwire.web.access import keys, sessions, tickets, users
from kwire.web.admin import backups, node
from kwire.web.browse import browse
from kwire.web.console import files as console_files
from kwire.web.console import overview, topic_list
from kwire.web.db_events import publish as db_publish
from kwire.web.db_events import slots as db_slots
from kwire.web.db_events import subscribe as db_subscribe
from kwire.web.documentation import about, openapi, pages
from kwire.web.events import publish as event_publish
from kwire.web.events import read as event_read
from kwire.web.events import subscribe as event_subscribe
from kwire.web.events import topics as event_topics
from kwire.web.groups import consumer_groups, groups
from kwire.web.groups import stream as group_stream
from kwire.web.kafka_requests import routes as kafka_requests
from kwire.web.monitoring import health, metrics
from kwire.web.proxy import metadata as proxy_metadata
from kwire.web.proxy import produce as proxy_produce
from kwire.web.rooms import events as room_events
from kwire.web.rooms import post_command, rooms, subscribers
from kwire.web.rooms import subscribe as room_subscribe
from kwire.web.route import Route
from kwire.web.services import (
    AboutServices,
    AccessServices,
    AdminServices,
    DbEventServices,
    EventStoreServices,
    GroupServices,
    KafkaRequestServices,
    MonitoringServices,
    OverviewServices,
    RoomServices,
    SegmentServices,
    TopicServices,
    WebhookServices,
    WebServices,
)
from kwire.web.topics import events as topic_events
from kwire.web.topics import segments as topic_segments
from kwire.web.topics import stats as topic_stats
from kwire.web.topics import topics
from kwire.web.webhooks import consumers as webhook_consumers
from kwire.web.webhooks import deliveries as webhook_deliveries
from kwire.web.webhooks import webhooks

__all__ = ["MONITORING_ROUTES", "ROUTES", "TOPIC_ROUTES", "WEBHOOK_ROUTES", "Route", "RouteGroup", "bound_routes"]

Containers = TypeVar("Containers")
Services = TypeVar("Services")
BoundHandle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RouteGroup(NamedTuple, Generic[Containers, Services]):
    """Routes whose handlers take the same one of the containers of services."""

    services_of: Callable[[Containers], Services]
    routes: tuple[Route[Services], ...]


def _all() -> tuple[Route[Any], ...]:
    return ROUTES


# The routes that kwire.http.monitoring.listener serves.
MONITORING_ROUTES: tuple[Route[MonitoringServices], ...] = (*health.ROUTES, *metrics.ROUTES)

# The routes of topics, wherever their logs are.
TOPIC_ROUTES: tuple[Route[TopicServices], ...] = (
    *topics.ROUTES,
    *topic_events.ROUTES,
    *topic_stats.ROUTES,
    *browse.ROUTES,
    *proxy_metadata.ROUTES,
    *proxy_produce.ROUTES,
)

WEBHOOK_ROUTES: tuple[Route[WebhookServices], ...] = (
    *webhook_consumers.ROUTES,
    *webhooks.ROUTES,
    *webhook_deliveries.ROUTES,
)

# A request is matched with the routes in this order.
EVENT_STORE_ROUTES: tuple[Route[EventStoreServices], ...] = (
    *event_topics.ROUTES,
    *event_publish.ROUTES,
    *event_read.ROUTES,
    *event_subscribe.ROUTES,
)

_GROUPS: tuple[RouteGroup[WebServices, Any], ...] = (
    RouteGroup[WebServices, MonitoringServices](lambda web: web.monitoring, MONITORING_ROUTES),
    RouteGroup[WebServices, GroupServices](lambda web: web.groups, groups.ROUTES),
    # The routes for events and subscriptions of rooms come first, because they are used most often.
    RouteGroup[WebServices, RoomServices](
        lambda web: web.rooms,
        (
            *room_events.ROUTES,
            *room_subscribe.ROUTES,
            *rooms.ROUTES,
            *subscribers.ROUTES,
            *post_command.ROUTES,
        ),
    ),
    RouteGroup[WebServices, DbEventServices](
        lambda web: web.db_events, (*db_publish.ROUTES, *db_subscribe.ROUTES, *db_slots.ROUTES)
    ),
    RouteGroup[WebServices, GroupServices](lambda web: web.groups, (*consumer_groups.ROUTES, *group_stream.ROUTES)),
    RouteGroup[WebServices, EventStoreServices](lambda web: web.event_store, EVENT_STORE_ROUTES),
    RouteGroup[WebServices, WebhookServices](lambda web: web.webhooks, WEBHOOK_ROUTES),
    RouteGroup[WebServices, TopicServices](lambda web: web.topics, TOPIC_ROUTES),
    RouteGroup[WebServices, SegmentServices](lambda web: web.segments, topic_segments.ROUTES),
    RouteGroup[WebServices, AccessServices](
        lambda web: web.access, (*tickets.ROUTES, *sessions.ROUTES, *keys.ROUTES, *users.ROUTES)
    ),
    RouteGroup[WebServices, OverviewServices](lambda web: web.overview, (*overview.ROUTES, *topic_list.ROUTES)),
    RouteGroup[WebServices, AboutServices](lambda web: AboutServices(), about.ROUTES),
    RouteGroup[WebServices, AdminServices](lambda web: web.admin, (*node.ROUTES, *backups.ROUTES)),
    RouteGroup[WebServices, KafkaRequestServices](lambda web: web.kafka_requests, kafka_requests.ROUTES),
    RouteGroup[WebServices, object](lambda web: None, (*openapi.routes_of(_all), *pages.ROUTES, *console_files.ROUTES)),
)

ROUTES: tuple[Route[Any], ...] = tuple(route for group in _GROUPS for route in group.routes)


def bound_routes(services: WebServices) -> Iterator[tuple[Route[Any], BoundHandle]]:
    """Generate every route in order, with its handler bound to the services that the handler takes."""
    for group in _GROUPS:
        taken = group.services_of(services)
        for route in group.routes:
            yield route, partial(route.handle, taken)
