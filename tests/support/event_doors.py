"""Topics of the event store for tests of its HTTP doors, whose schemas take any payload, and what is in them."""

from collections.abc import Callable
from typing import Any

from kwire.bridge.process import Bridge
from kwire.node import Node
from tests.support.http import Http

TYPES = ("made", "odd", "even", "user.created", "user.verified")


async def make_topics(server: Node | Bridge, *names: str, **configs: str) -> list[Any]:
    """`max_message_bytes="10"` sets `max.message.bytes`. Schemas are judged here: to start a worker takes a second."""

    async def judged_here(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    named = {key.replace("_", "."): value for key, value in configs.items()}
    schemas = [{"eventType": one} for one in TYPES]
    if isinstance(server, Node):
        server.event_topics._run = judged_here
        return [await server.event_topics.create(name, schemas, named) for name in names]
    store = server._event_store.store
    store.topics._run = judged_here
    for name in names:
        await store.create_event_topic(name, schemas, named)
    return [store.topics.find(name) for name in names]


def event(topic: str, payload: object = None, **more: object) -> dict[str, object]:
    """An event of type `made`."""
    return {"topic": topic, "type": "made", "payload": payload, **more}


async def published(http: Http, *events: dict[str, object], **headers: str) -> list[str]:
    answer = await http.post("/events", list(events), **headers)
    assert answer.status in (200, 201), answer.body
    ids: list[str] = answer.json["eventIds"]
    return ids


async def page_of(http: Http, topic: str, query: str = "") -> tuple[list[Any], str | None]:
    """The payloads of a page, and where the next one begins."""
    answer = await http.get(f"/topics/{topic}/events" + (f"?{query}" if query else ""))
    assert answer.status == 200, answer.body
    return [one["payload"] for one in answer.json["events"]], answer.json["next"]


async def refused(http: Http, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    answer = await http.ask(method, path, body, **headers)
    return answer.status, answer.code
