"""Every path the HTTP port answers: the routes of each resource file, in one explicit list."""

from kwire.web import health, metrics, openapi, pages
from kwire.web.events import publish as event_publish
from kwire.web.events import read as event_read
from kwire.web.events import subscribe as event_subscribe
from kwire.web.events import topics as event_topics
from kwire.web.groups import consumer_groups, groups
from kwire.web.groups import stream as group_stream
from kwire.web.proxy import metadata as proxy_metadata
from kwire.web.proxy import produce as proxy_produce
from kwire.web.rooms import events as room_events
from kwire.web.rooms import post_command, rooms
from kwire.web.rooms import subscribe as room_subscribe
from kwire.web.route import Route
from kwire.web.topics import events as topic_events
from kwire.web.topics import stats as topic_stats
from kwire.web.topics import topics
from kwire.web.webhooks import consumers as webhook_consumers
from kwire.web.webhooks import deliveries as webhook_deliveries
from kwire.web.webhooks import webhooks

__all__ = ["ROUTES", "Route"]


def _all() -> tuple[Route, ...]:
    return ROUTES


ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *metrics.ROUTES,
    *groups.ROUTES,
    # In front of other paths of rooms: they are tried in order, and these are the busy ones.
    *room_events.ROUTES,
    *room_subscribe.ROUTES,
    *rooms.ROUTES,
    *post_command.ROUTES,
    *consumer_groups.ROUTES,
    *group_stream.ROUTES,
    *event_topics.ROUTES,
    *event_publish.ROUTES,
    *event_read.ROUTES,
    *event_subscribe.ROUTES,
    *webhook_consumers.ROUTES,
    *webhooks.ROUTES,
    *webhook_deliveries.ROUTES,
    *topics.ROUTES,
    *topic_events.ROUTES,
    *topic_stats.ROUTES,
    *proxy_metadata.ROUTES,
    *proxy_produce.ROUTES,
    *openapi.routes_of(_all),
    *pages.ROUTES,
)
