"""Pages and scripts that the server delivers: the page /docs, which describes the HTTP API and can send requests, and
the JavaScript client.

The files are part of the package `kwire.web`. Each file is read at its first request. The pages load nothing from other
servers; the Content-Security-Policy enforces that.
"""

import hashlib
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

from aiohttp import hdrs, web

from kwire.web.console.files import HOME as CONSOLE
from kwire.web.needs import PUBLIC
from kwire.web.route import Route

HTML = "text/html"
CSS = "text/css"
JAVASCRIPT = "text/javascript"
TYPESCRIPT = "application/typescript"

# Pages may load from and connect to this port only.
POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

DOCS = "/docs"


class Page(NamedTuple):
    path: str
    file: str
    content_type: str


PAGES: tuple[Page, ...] = (
    Page(DOCS, "docs.html", HTML),
    Page("/docs.css", "docs.css", CSS),
    Page("/docs.js", "docs.js", JAVASCRIPT),
    Page("/kwire.js", "kwire.js", JAVASCRIPT),
    Page("/kwire.d.ts", "kwire.d.ts", TYPESCRIPT),
)


async def _serve(page: Page, services: object, request: web.Request) -> web.Response:
    body, tag = _contents(page.file)
    headers = {hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-cache", "X-Content-Type-Options": "nosniff"}
    if page.content_type == HTML:
        headers["Content-Security-Policy"] = POLICY
    if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=page.content_type, charset="utf-8", headers=headers)


async def _home(services: object, request: web.Request) -> web.Response:
    """Lead browsers to the console, and other programs to the description of the API."""
    location = CONSOLE if HTML in request.headers.get(hdrs.ACCEPT, "") else DOCS
    return web.Response(status=302, headers={hdrs.LOCATION: location, hdrs.VARY: hdrs.ACCEPT})


@cache
def _contents(name: str) -> tuple[bytes, str]:
    body = files("kwire.web").joinpath("pages", name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'


ROUTES: tuple[Route[object], ...] = (
    Route("GET", "/", _home, is_hidden=True, needs=PUBLIC),
    *(Route("GET", page.path, partial(_serve, page), is_hidden=True, needs=PUBLIC) for page in PAGES),
)
