"""The JavaScript client, which the server delivers, and `/`, which leads to the console or to the page /docs.

The files are part of the package `kwire.web`. Each file is read at its first request.
"""

import hashlib
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

from aiohttp import hdrs, web

from kwire.web.console.files import DOCS
from kwire.web.console.files import HOME as CONSOLE
from kwire.web.needs import PUBLIC
from kwire.web.route import Route

HTML = "text/html"
JAVASCRIPT = "text/javascript"
TYPESCRIPT = "application/typescript"


class Script(NamedTuple):
    path: str
    file: str
    content_type: str


SCRIPTS: tuple[Script, ...] = (
    Script("/kwire.js", "kwire.js", JAVASCRIPT),
    Script("/kwire.d.ts", "kwire.d.ts", TYPESCRIPT),
)


async def _serve(script: Script, services: object, request: web.Request) -> web.Response:
    body, tag = _contents(script.file)
    headers = {hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-cache", "X-Content-Type-Options": "nosniff"}
    if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=script.content_type, charset="utf-8", headers=headers)


async def _home(services: object, request: web.Request) -> web.Response:
    """Lead browsers to the console, and other programs to the description of the API."""
    location = CONSOLE if HTML in request.headers.get(hdrs.ACCEPT, "") else DOCS
    return web.Response(status=302, headers={hdrs.LOCATION: location, hdrs.VARY: hdrs.ACCEPT})


@cache
def _contents(name: str) -> tuple[bytes, str]:
    body = files("kwire.web").joinpath("pages", name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'


SCRIPT_ROUTES: tuple[Route[object], ...] = tuple(
    Route("GET", one.path, partial(_serve, one), is_hidden=True, needs=PUBLIC) for one in SCRIPTS
)
ROUTES: tuple[Route[object], ...] = (Route("GET", "/", _home, is_hidden=True, needs=PUBLIC), *SCRIPT_ROUTES)
