"""Who may use the HTTP port from a browser, and which names no HTTP door takes.

A browser lends its place in the network to every page it shows. So a page of another origin may use this port, by
request or by WebSocket, only if `kwire.http.origins` lists it (`*`: any). Three things tell such a page: its Origin,
the Sec-Fetch-Site that browsers send, and a body of a content type that needs no asking first: a form or plain text. A
page whose own name was made to resolve to this machine has the same origin as we, but not a name we have: a port that
is bound to loopback answers only to addresses, to `localhost`, and to the hosts of listed origins.

Who sends none of these headers is no browser and is not held up.

Names that start with `__` are internal topics: they are refused here, in one place, for every path that names a topic
or a room; doors that take such a name in a body call `check_name`.
"""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from aiohttp import hdrs, web

from kwire.errors import InvalidName
from kwire.web.errors import Forbidden, UnsupportedMediaType

INTERNAL_PREFIX = "__"
# What stands for a topic or a room in the paths of routes.
NAMES_IN_PATHS = ("room", "topic", "name")
# What HTML forms can send; anything else a browser announces first, if another origin sends it.
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
PREFLIGHT_SECONDS = 600
# Hosts found to be ours, so that they are looked at once; who sends more different ones pays for the look.
KNOWN_HOSTS_MAX = 64

# RFC 9110, section 7.2: a name, an IPv4 address or an IPv6 address in brackets, and a port.
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

# The listed origin that a request comes from.
TRUSTED = web.RequestKey("kwire.trusted_origin", str)


class Guard:
    """The rules for one port."""

    def __init__(self, origins: frozenset[str], is_loopback: bool) -> None:
        self._origins = origins
        self._is_open = "*" in origins
        self._checks_host = is_loopback and not self._is_open
        # Not the empty one of the origin "null": a malformed Host is empty too.
        self._listed_hosts = {_host_of(one.partition("://")[2]) for one in origins} - {""}
        self._known_hosts: set[str] = set()

    def check(self, request: web.Request) -> None:
        """Raise Forbidden, UnsupportedMediaType or InvalidName. Marks requests of a listed origin as trusted."""
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
            # The usual answer comes first: to take the header apart costs more.
            and kind != "application/json"
            and request.content_type in FORM_TYPES
            and TRUSTED not in request
        ):
            raise UnsupportedMediaType(
                f"a body of type {request.content_type} is not taken: send Content-Type: application/json"
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
                f"this port serves this machine, and {host[:100]!r} is not its name; "
                "kwire.http.origins can list the origin that is served under it",
                code="HostNotAllowed",
            )
        if len(self._known_hosts) < KNOWN_HOSTS_MAX:
            self._known_hosts.add(host)

    def _check_origin(self, request: web.Request, origin: str, host: str | None) -> None:
        if self._is_open or origin.lower() in self._origins:
            request[TRUSTED] = origin
        elif request.headers.get("Sec-Fetch-Site") == "same-origin":
            # The browser knows better than we do: a proxy between us may have changed the Host.
            return
        elif host is None or origin.partition("://")[2].lower() != host.lower():
            raise _untrusted(origin[:100])

    def _check_site(self, request: web.Request, site: str) -> None:
        """A browser leaves out the Origin where a page cannot read the answer; the request has effects all the same."""
        if site in ("same-origin", "none") or self._is_open:
            return
        # Somebody follows a link to one of our pages.
        is_visit = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if not is_visit or request.headers.get("Sec-Fetch-Dest") != "document":
            raise _untrusted("another site")


def check_name(name: str) -> None:
    """Refuse the name of an internal topic, as a topic or as a room."""
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidName(name, "names that start with __ are internal")


def _check_escapes(request: web.Request) -> None:
    """What is no escape of UTF-8 would stay as it is, and be another spelling of a name with percent signs."""
    raw = request.raw_path.partition("?")[0].encode(errors="replace")
    try:
        if not _BROKEN_ESCAPE.search(raw):
            unquote_to_bytes(raw).decode()
            return
    except UnicodeDecodeError:
        pass
    raise InvalidName(request.raw_path[:100], "its percent escapes are not those of a text in UTF-8")


def is_trusted(request: web.Request) -> bool:
    """The request comes from an origin that `kwire.http.origins` lists."""
    return TRUSTED in request


def cors_headers(request: web.Request) -> Mapping[str, str]:
    """What lets a page of a listed origin read the answer. Answers get it by themselves; who writes the head of an
    answer itself (a stream) adds it."""
    origin = request.get(TRUSTED)
    if origin is None:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def preflight_answer(request: web.Request) -> web.Response:
    """What a browser asks before a page of another origin may send JSON."""
    return web.Response(
        status=204,
        headers={
            **cors_headers(request),
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": "Accept, Content-Type, Idempotency-Key, Last-Event-ID",
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        },
    )


def is_preflight(request: web.Request) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers and is_trusted(request)


def _untrusted(who: str) -> Forbidden:
    return Forbidden(
        f"requests from pages of {who} are refused; kwire.http.origins lists the origins that may",
        code="OriginNotAllowed",
    )


def _host_of(host: str) -> str:
    """The name or address in a Host header, lower-case and without its port; empty if the header is malformed."""
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
    """Whether a port bound to this host is reached from this machine only."""
    if _is_localhost(host.lower()):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
