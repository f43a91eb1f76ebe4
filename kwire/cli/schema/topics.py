"""The topics of the event store, over HTTP."""

from typing import Any
from urllib.parse import quote, urlencode

from kwire.cli.connection.http_client import HttpClient

# The number of names in one request.
PAGE_NAMES = 10_000


def event_topics(client: HttpClient) -> list[str]:
    """Return the names of all topics of the event store, sorted."""
    names: list[str] = []
    while True:
        query: dict[str, Any] = {"events": "true", "limit": PAGE_NAMES} | ({"after": names[-1]} if names else {})
        page: list[str] = client.request("GET", f"/topics?{urlencode(query)}")
        names += page
        if len(page) < PAGE_NAMES:
            return names


def topic_path(topic: str, resource: str = "", **query: Any) -> str:
    """Return the path of a topic, or of one of its resources."""
    path = "/".join(part for part in ("/topics", quote(topic, safe=""), resource) if part)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
