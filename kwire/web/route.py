"""What a path of the HTTP port is: who answers it, and all that its documentation says.

A resource file holds its handlers, the shapes of its bodies as msgspec Structs, and its own tuple `ROUTES`; `routes.py`
joins them. `openapi.py` describes every route from these fields alone, so what is documented is what is decoded.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from kwire.web.services import WebServices

Handle = Callable[[WebServices, web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
TEXT = "text/plain"


class AnyOf(NamedTuple):
    """One of several shapes, where msgspec knows no such union (two Structs without tags)."""

    shapes: tuple[Any, ...]


class Answer(NamedTuple):
    """An answer whose body is not simply JSON, or that deserves a sentence. `shapes`: media type to the type of its
    body (for NDJSON: of a line); None is a body without a shape, no media type at all is no body."""

    description: str
    shapes: Mapping[str, Any] = {}


class Route(NamedTuple):
    method: str
    path: str
    handle: Handle
    # One line, and what else should be known of it, in Markdown.
    summary: str = ""
    description: str = ""
    # The heading under which it stands in the documentation.
    tag: str = "node"
    # The JSON body: any type that msgspec can decode. Bodies of other media types (`application/x-ndjson`) beside it.
    request: Any = None
    more_requests: Mapping[str, Any] = {}
    # A Struct with a field for each query parameter; those with a default are optional.
    query: Any = None
    # Headers that it looks at, besides those that every request may have: name to type. All are optional.
    headers: Mapping[str, Any] = {}
    # Types of path parameters that are not plain text, and text for those that need a word.
    parameters: Mapping[str, Any] = {}
    # What is answered when all goes well: status to the type of a JSON body, to an Answer, or None for no body.
    answers: Mapping[int, Any] = {200: None}
    # Refusals of other media types than JSON: REST Proxy has its own shape of errors.
    more_refusals: Mapping[str, Any] = {}
    # The answer does not end by itself.
    is_streaming: bool = False
    # Left out of the documentation: pages and what belongs to them.
    is_hidden: bool = False
