"""A route of the HTTP port: its path, its handler and its documentation.

A resource module has its handlers, the msgspec Structs of its bodies, and a tuple `ROUTES`. `routes.py` joins these
tuples. `openapi.py` creates the documentation only from the fields of `Route`. So the documented types are the types to
which requests are decoded.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from aiohttp import web

from kwire.access.quotas.client_quota import Exceeded
from kwire.access.quotas.kinds import QuotaKind
from kwire.web.answers.errors import Refusal
from kwire.web.needs import Needs

# The type of the services that a handler takes: one of the containers in services.py.
Services = TypeVar("Services", contravariant=True)

Handle = Callable[[Services, web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
TEXT = "text/plain"


class AnyOf(NamedTuple):
    """A union of types that msgspec cannot describe, for example of two Structs without tags."""

    shapes: tuple[Any, ...]


class Answer(NamedTuple):
    """A documented answer that is not plain JSON, or that needs a description.

    `shapes` maps a media type to the type of the body; for NDJSON, to the type of a line. If the type is None, the body
    has no declared type. If the mapping is empty, the answer has no body.
    """

    description: str
    shapes: Mapping[str, Any] = {}


class Route(NamedTuple, Generic[Services]):
    """A method and a path, with the handler and the data for the OpenAPI document."""

    method: str
    path: str
    handle: Handle[Services]
    # The summary is one line. The description has the details, in Markdown.
    summary: str = ""
    description: str = ""
    # The section of the documentation: a key of TAGS in openapi.py.
    tag: str = "node"
    # The type of the JSON body: any type that msgspec can decode.
    request: Any = None
    # The types of bodies with other media types, for example `application/x-ndjson`, by media type.
    more_requests: Mapping[str, Any] = {}
    # A Struct with one field for each query parameter. A parameter is optional if its field has a default.
    query: Any = None
    # The types of headers that only this route reads, by name. All of them are optional.
    headers: Mapping[str, Any] = {}
    # The types of path parameters, by name. Other path parameters accept any text.
    parameters: Mapping[str, Any] = {}
    # The successful answers, by status: the type of a JSON body, an Answer, or None if there is no body.
    answers: Mapping[int, Any] = {200: None}
    # The types of error bodies with media types other than JSON, by media type. REST Proxy has its own error format.
    more_refusals: Mapping[str, Any] = {}
    # The operations that callers must be allowed to do. Each route must declare them: the server does not start with a
    # route whose needs are None.
    needs: Needs | None = None
    # The quota that requests are charged to, besides that of their time: what they publish, read, or create and delete.
    # None if they do none of these.
    charges: QuotaKind | None = None
    # Returns the error for a client that has exceeded the quota. None is the usual one, with the status 429.
    refuse_quota: Callable[[Exceeded], Refusal] | None = None
    # Whether the answer is a stream, which may continue until the client disconnects.
    is_streaming: bool = False
    # Whether the documentation leaves out the route. This is set for HTML pages and scripts.
    is_hidden: bool = False
