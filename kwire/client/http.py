"""HTTP requests with JSON bodies. Responses are decoded, and error responses are raised as exceptions."""

import asyncio
import io
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from kwire.client.errors import AnswerTimeout, ConnectionLost, PublishUncertain, Refused, Unreachable, refusal_of
from kwire.client.json_text import json_text

BODY_EXCERPT_LENGTH = 200


class Http:
    """Sends HTTP requests to one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_s: float) -> None:
        self._session = session
        self._url = url
        self._timeout_s = timeout_s

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the response. The client never repeats a POST by itself.

        PublishUncertain is raised for a POST if no response arrived: the server may have processed the request. If the
        time limit was the cause, its subclass AnswerTimeout is raised, for any method.
        """
        is_write = method == "POST"
        # aiohttp sends a file object in chunks, so a large body does not block the event loop.
        data = None if body is None else io.BytesIO(json_text(body).encode())
        sent = {**(headers or {}), **({"Content-Type": "application/json"} if data is not None else {})}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.request(
                    method, self._url + path, data=data, headers=sent, params=query, allow_redirects=False
                ) as answer,
            ):
                return _checked(answer.status, await answer.read())
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"no connection to {self._url}: {error}") from error
        except TimeoutError:  # this class is a subclass of OSError
            raise AnswerTimeout(f"no answer to {method} {path} within {self._timeout_s} s") from None
        except (aiohttp.ClientError, OSError) as error:
            lost = f"the connection was lost before the answer: {type(error).__name__}: {error}"
            raise (PublishUncertain if is_write else ConnectionLost)(lost) from error


def room_path(room: str, below: str = "") -> str:
    return f"/rooms/{quote(room, safe='')}{below}"


def _checked(status: int, body: bytes) -> Any:
    try:
        answer = json.loads(body) if body else None
    except ValueError:
        answer = None
    if 200 <= status < 300:
        return answer
    if isinstance(answer, Mapping) and "error" in answer:
        raise refusal_of(answer["error"])
    raise Refused(f"Http{status}", body[:BODY_EXCERPT_LENGTH].decode(errors="replace"), {})
