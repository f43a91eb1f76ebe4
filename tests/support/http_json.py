"""JSON over HTTP the way a script asks for it: one request, its status and what its body says."""

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

HTTP_TIMEOUT_S = 30.0


class HttpAnswer(NamedTuple):
    status: int
    body: Any
    content_type: str


def ask(
    url: str,
    method: str = "GET",
    body: object = None,
    content_type: str = "application/json",
    accept: str | None = None,
    authorization: str | None = None,
) -> HttpAnswer:
    raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type} if raw is not None else {}
    if accept is not None:
        headers["Accept"] = accept
    if authorization is not None:
        headers["Authorization"] = authorization
    request = urllib.request.Request(url, raw, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:
            return _read(answer)
    except urllib.error.HTTPError as error:
        with error:
            return _read(error)


def _read(answer: Any) -> HttpAnswer:
    text = answer.read()
    return HttpAnswer(answer.status, json.loads(text) if text else None, answer.headers.get_content_type())
