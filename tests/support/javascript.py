"""The JavaScript client in a Node process, called from a test.

`transport` is "websocket" (Node 20 has one behind a flag) or "lines", which is what a plain Node 20 gets.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "kwire" / "web" / "pages" / "kwire.js"
DRIVER = ROOT / "tests" / "client" / "driver.mjs"
WAIT_S = 20.0
LINE_BYTES_MAX = 16 * 1024 * 1024
QUICK_RETRIES = {"retryDelayMsMin": 10, "retryDelayMsMax": 50, "timeoutMs": 10_000}


class JavaScriptError(Exception):
    """What a call of the client was rejected with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.details: dict[str, Any] = error["details"]


class JavaScriptClient:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        text = json.dumps({"id": number, "call": name, "name": "client", "subscription": "s", **arguments})
        self._process.stdin.write(text.encode() + b"\n")
        return await asyncio.wait_for(answer, WAIT_S)

    async def data(self, count: int, **arguments: Any) -> list[Any]:
        """The data of the next events."""
        return [event["data"] for event in await self.call("events", count=count, **arguments)]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            future = self._answers.pop(answer["id"])
            if future.done():
                continue
            if "error" in answer:
                future.set_exception(JavaScriptError(answer["error"]))
            else:
                future.set_result(answer["result"])

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader


@asynccontextmanager
async def javascript_client(url: str, transport: str, **options: Any) -> AsyncIterator[JavaScriptClient]:
    flags = ["--experimental-websocket"] if transport == "websocket" else []
    process = await asyncio.create_subprocess_exec(
        *("node", *flags, str(DRIVER), MODULE.as_uri()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    client = JavaScriptClient(process)
    try:
        assert await client.call("client", url=url, transport=transport, options={**QUICK_RETRIES, **options})
        yield client
    finally:
        await client.close()
