"""The parts that the event store was to have are rooms of their own, each with one thing to know."""

from importlib import import_module

import pytest

# The parts as the text names them, and what each is here.
PARTS = {
    "routes": ("kwire.web.routes", "ROUTES"),
    "topics": ("kwire.streams.event_store.event_topics", "EventTopics"),
    "events": ("kwire.streams.event_store.event_store", "EventStore"),
    "dispatcher": ("kwire.streams.webhooks.delivery.dispatcher", "Dispatcher"),
    "consumers": ("kwire.streams.webhooks.consumer", "Consumer"),
    "schema store": ("kwire.streams.event_store.schemas.topic_schemas", "TopicSchemas"),
    "validation": ("kwire.streams.event_store.schemas.payload_checks", "SchemaChecks"),
}


@pytest.mark.proves("S2-41")
@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_event_store_has_a_module_of_its_own(part: str) -> None:
    module, name = PARTS[part]
    assert hasattr(import_module(module), name)


@pytest.mark.proves("S2-6")
def test_all_of_it_is_reachable_over_http() -> None:
    from kwire.web.routes import ROUTES

    paths = {(route.method, route.path) for route in ROUTES}
    assert {
        ("POST", "/topics"),
        ("POST", "/events"),
        ("GET", "/topics/{topic}/events"),
        ("POST", "/consumers/register"),
        ("GET", "/subscribe/all"),
        ("GET", "/subscribe/streams/{topic}"),
    } <= paths
