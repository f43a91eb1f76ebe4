"""The origin policy of the HTTP port: it determines which web pages may send requests, and refuses internal topics.

Any page in a browser can send requests from the user's machine. So a page of another origin may use this port, by
request or by WebSocket, only if `kwire.http.origins` lists the page's origin; `*` allows any origin. Browsers send the
headers Origin and Sec-Fetch-Site, which identify such requests. A body whose content type needs no CORS preflight (a
form or plain text) is accepted only from a listed origin.

In DNS rebinding, the host name of a foreign page resolves to this machine. Therefore a port that is bound to loopback
accepts in the header Host only addresses, `localhost`, and the hosts of listed origins. If `kwire.http.hosts` is set,
every port accepts only addresses, `localhost`, the hosts of listed origins, and the names in this setting.

Requests without Origin and Sec-Fetch-Site do not come from a browser, so their origin is not checked.

No answer has Access-Control-Allow-Credentials: scripts send the header Authorization themselves, and browsers do not
add stored credentials to requests of other origins. With authentication, `*` is not a valid origin
(config/http_api.py).

Topics whose names start with `__` are internal. `OriginPolicy.check` refuses these names in every path that names a
topic or a room. A handler that reads a name from a body must call `check_name`.
"""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from aiohttp import hdrs, web

from kwire.errors import InvalidName
from kwire.web.answers.errors import Forbidden, UnsupportedMediaType

INTERNAL_PREFIX = "__"
# The path parameters that name a topic or a room.
NAMES_IN_PATHS = ("room", "topic", "name")
# The content types of HTML forms. For any other type a browser sends a CORS preflight first.
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
PREFLIGHT_SECONDS = 600
# The headers of answers that pages of listed origins may read, besides those that every page may read.
EXPOSED_HEADERS = "Allow, ETag, Location, Retry-After, WWW-Authenticate, X-Next-Offset, X-Request-ID"
# The headers that pages of listed origins may send, besides those that every page may send.
ALLOWED_HEADERS = "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, traceparent, X-Request-ID"
# The maximum number of accepted Host headers in the cache. Other Host headers are checked at each request.
KNOWN_HOSTS_MAX = 64

# RFC 9110, section 7.2: a name, an IPv4 address or an IPv6 address in brackets, and a port.
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

# The origin of a request, set if the origin is listed.
TRUSTED = web.RequestKey("kwire.trusted_origin", str)


class OriginPolicy:
    """The origin policy of one port."""

    def __init__(self, origins: frozenset[str], is_loopback: bool, hosts: frozenset[str] = frozenset()) -> None:
        self._origins = origins
        self._is_open = "*" in origins
        self._checks_host = bool(hosts) or (is_loopback and not self._is_open)
        self._listed_hosts = {_host_of(one.partition("://")[2]) for one in origins} | {_host_of(one) for one in hosts}
        # Remove the empty host, which the origin "null" has. Otherwise a malformed Host would be accepted, because
        # `_host_of` returns "" for it.
        self._listed_hosts -= {""}
        self._known_hosts: set[str] = set()

    def check(self, request: web.Request) -> None:
        """Raise Forbidden, UnsupportedMediaType or InvalidName. Sets TRUSTED on requests of a listed origin."""
        headers = request.headers
        host = headers.get(hdrs.HOST)
        if self._checks_host and host is not None and host not in self._known_hosts:
            self._check_host(host)
        origin = headers.get(hdrs.ORIGIN)
        if origin is not None:
            self._check_origin(request, origin, host)
        elif (site := headers.get("Sec-Fetch-Site")) is not None:
            self._check_site(request, site)
        if (
            request.method not in WITHOUT_BODY
            and (kind := headers.get(hdrs.CONTENT_TYPE)) is not None
            # Compare with the most frequent value first, because parsing the header takes longer.
            and kind != "application/json"
            and request.content_type in FORM_TYPES
            and TRUSTED not in request
        ):
            raise UnsupportedMediaType(
                f"a body of type {request.content_type} is not accepted: send Content-Type: application/json"
            )
        names = request.match_info
        for parameter in NAMES_IN_PATHS:
            if parameter in names:
                check_name(names[parameter])
                if "%" in names[parameter]:
                    _check_escapes(request)

    def _check_host(self, host: str) -> None:
        name = _host_of(host)
        if not (_is_address(name) or _is_localhost(name) or name in self._listed_hosts):
            raise Forbidden(
                f"the Host {host[:100]!r} is not one of the names of this port: use localhost or an address, or add "
                "the name to kwire.http.hosts",
                code="HostNotAllowed",
            )
        if len(self._known_hosts) < KNOWN_HOSTS_MAX:
            self._known_hosts.add(host)

    def _check_origin(self, request: web.Request, origin: str, host: str | None) -> None:
        if self._is_open or origin.lower() in self._origins:
            request[TRUSTED] = origin
        elif request.headers.get("Sec-Fetch-Site") == "same-origin":
            # Trust the browser even if Host and Origin differ: a proxy may have changed Host.
            return
        elif host is None or origin.partition("://")[2].lower() != host.lower():
            raise _untrusted(origin[:100])

    def _check_site(self, request: web.Request, site: str) -> None:
        """Raise Forbidden for a request of another site that has no Origin. Browsers omit Origin in some requests whose
        answers the page cannot read, but the server would still execute these requests."""
        if site in ("same-origin", "none") or self._is_open:
            return
        # Allow links from other sites to the pages of this port.
        is_visit = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if not is_visit or request.headers.get("Sec-Fetch-Dest") != "document":
            raise _untrusted("another site")


def check_name(name: str) -> None:
    """Raise InvalidName if `name` is the name of an internal topic."""
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidName(name, "names that start with __ are internal")


def _check_escapes(request: web.Request) -> None:
    """Raise InvalidName for invalid percent escapes in the path. Invalid escapes are not decoded, so without this check
    two different paths could name the same room."""
    raw = request.raw_path.partition("?")[0].encode(errors="replace")
    try:
        if not _BROKEN_ESCAPE.search(raw):
            unquote_to_bytes(raw).decode()
            return
    except UnicodeDecodeError:
        pass
    raise InvalidName(request.raw_path[:100], "its percent escapes must be valid UTF-8")


def is_trusted(request: web.Request) -> bool:
    """Return whether the request comes from an origin that `kwire.http.origins` lists."""
    return TRUSTED in request


def cors_headers(request: web.Request) -> Mapping[str, str]:
    """Return the headers that allow a page of a listed origin to read the answer. The middleware adds these headers.
    Code that writes the head of an answer itself (a stream) adds `common_headers` (request_ids.py)."""
    origin = request.get(TRUSTED)
    if origin is None:
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": EXPOSED_HEADERS,
        "Vary": "Origin",
    }


def preflight_answer(request: web.Request) -> web.Response:
    """Return the answer to a CORS preflight. A browser sends a preflight before a page of another origin may send
    JSON."""
    return web.Response(
        status=204,
        headers={
            **cors_headers(request),
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        },
    )


def is_preflight(request: web.Request) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers and is_trusted(request)


def _untrusted(source: str) -> Forbidden:
    return Forbidden(
        f"requests from pages of {source} are refused: add the origin to kwire.http.origins",
        code="OriginNotAllowed",
    )


def _host_of(host: str) -> str:
    """Return the name or address in a Host header, in lower case and without the port; "" if it is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"] or "").lower()


def _is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a port that is bound to this host can be reached only from this machine."""
    if _is_localhost(host.lower()):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
