"""The files of the console, of the examples and of the page for the HTTP API: /console, /examples, /docs, and
/console/static for scripts and styles.

The console is one page, so every path below /console answers with the same document; the script in it reads the path.
The same holds for the pages below /examples. /docs describes the HTTP API and can send requests. They share the scripts
and styles of the console.
The paths of scripts and styles contain the build, a hash of all files. Browsers therefore keep the files for as long as
they like and still load the new ones after an upgrade. Modules import each other by relative paths, so they stay
within one build.
"""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import hdrs, web

from kwire.web.answers.errors import Refusal
from kwire.web.needs import PUBLIC
from kwire.web.route import Route

HOME = "/console"
EXAMPLES_HOME = "/examples"
DOCS = "/docs"
DOCUMENT = "index.html"
EXAMPLES_DOCUMENT = "examples/index.html"
DOCS_DOCUMENT = "docs/index.html"
DOCUMENTS = (DOCUMENT, EXAMPLES_DOCUMENT, DOCS_DOCUMENT)
# The text in a document that stands for the build.
BUILD_PLACEHOLDER = b"{build}"
BUILD_CHARS = 16
CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

# No inline scripts and styles, and no connection to other servers.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
UNTIL_THE_NEXT_BUILD = "public, max-age=31536000, immutable"
ASK_EVERY_TIME = "no-cache"


class File(NamedTuple):
    body: bytes
    content_type: str
    tag: str


class Build(NamedTuple):
    """All files of the console, by their path below the folder."""

    name: str
    files: dict[str, File]


@cache
def build() -> Build:
    """Read all files. The first request does this, not the start of the server."""
    bodies = dict(sorted(_walk(files("kwire.web").joinpath("pages", "console"), "")))
    name = hashlib.sha256(b"\0".join(path.encode() + b"\0" + body for path, body in bodies.items())).hexdigest()
    name = name[:BUILD_CHARS]
    for document in DOCUMENTS:
        bodies[document] = bodies[document].replace(BUILD_PLACEHOLDER, name.encode())
    return Build(name, {path: _file(path, body) for path, body in bodies.items()})


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _walk(one, f"{prefix}{one.name}/")
        elif _suffix(one.name) in CONTENT_TYPES:
            found.append((prefix + one.name, one.read_bytes()))
    return found


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


def _file(path: str, body: bytes) -> File:
    return File(body, CONTENT_TYPES[_suffix(path)], f'"{hashlib.sha256(body).hexdigest()[:BUILD_CHARS]}"')


async def show_console(services: object, request: web.Request) -> web.Response:
    return _document(request, DOCUMENT)


async def show_example(services: object, request: web.Request) -> web.Response:
    return _document(request, EXAMPLES_DOCUMENT)


async def show_docs(services: object, request: web.Request) -> web.Response:
    return _document(request, DOCS_DOCUMENT)


def _document(request: web.Request, path: str) -> web.Response:
    answer = _answer(request, build().files[path], ASK_EVERY_TIME)
    answer.headers["Content-Security-Policy"] = POLICY
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


async def show_file(services: object, request: web.Request) -> web.Response:
    path, current = request.match_info["file"], build()
    found = current.files.get(path)
    if found is None or path in DOCUMENTS:
        raise Refusal(f"the console has no file {path}", code="FileNotFound", status=404)
    is_current = request.match_info["build"] == current.name
    return _answer(request, found, UNTIL_THE_NEXT_BUILD if is_current else ASK_EVERY_TIME)


def _answer(request: web.Request, file: File, cache_control: str) -> web.Response:
    headers = {hdrs.ETAG: file.tag, hdrs.CACHE_CONTROL: cache_control, "X-Content-Type-Options": "nosniff"}
    if request.headers.get(hdrs.IF_NONE_MATCH) == file.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=headers)


ROUTES: tuple[Route[object], ...] = (
    Route("GET", f"{HOME}/static/{{build}}/{{file:.+}}", show_file, is_hidden=True, needs=PUBLIC),
    Route("GET", HOME, show_console, is_hidden=True, needs=PUBLIC),
    Route("GET", f"{HOME}/{{path:.*}}", show_console, is_hidden=True, needs=PUBLIC),
    Route("GET", DOCS, show_docs, is_hidden=True, needs=PUBLIC),
    Route("GET", EXAMPLES_HOME, show_example, is_hidden=True, needs=PUBLIC),
    Route("GET", f"{EXAMPLES_HOME}/{{name}}", show_example, is_hidden=True, needs=PUBLIC),
)
