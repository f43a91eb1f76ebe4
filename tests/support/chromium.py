"""A real Chromium without a window, driven through its DevTools protocol.

A page is a target; commands to it are JSON over one WebSocket. `Page.evaluate` runs JavaScript in the page and waits
for the promise it returns, if it does.
"""

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

START_TIMEOUT_S = 40.0
CALL_TIMEOUT_S = 20.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)


class ScriptFailed(AssertionError):
    """An exception in the page."""


class Browser:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())
        self._pages: dict[str, Page] = {}
        self.complaints: list[str] = []

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps(command))
        return await asyncio.wait_for(answer, CALL_TIMEOUT_S)

    async def open(self, url: str) -> "Page":
        page = await self.blank_page()
        await page.call("Page.navigate", url=url)
        return page

    async def blank_page(self, *, is_private: bool = False) -> "Page":
        """An empty page. A private one shares no cookies and no storage with other pages; `close` ends it."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"] if is_private else None
        where = {} if context is None else {"browserContextId": context}
        target = await self.call("Target.createTarget", url="about:blank", **where)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"], context)
        for domain in ("Runtime", "Page", "Log"):
            await page.call(f"{domain}.enable")
        return page

    async def _read(self) -> None:
        async for message in self._socket:
            frame = json.loads(message.data)
            complaint = _complaint(frame)
            if complaint is not None:
                if frame["method"] == "Runtime.exceptionThrown":
                    self.complaints.append(complaint)
                page = self._pages.get(frame.get("sessionId", ""))
                if page is not None:
                    page.complaints.append(complaint)
            answer = self._answers.pop(frame.get("id", 0), None)
            if answer is None or answer.done():
                continue
            if "error" in frame:
                answer.set_exception(AssertionError(frame["error"]["message"]))
            else:
                answer.set_result(frame["result"])


def _complaint(frame: dict[str, Any]) -> str | None:
    """The error that an event reports: an exception, console.error, a failed request or a violated policy."""
    params = frame.get("params", {})
    match frame.get("method"):
        case "Runtime.exceptionThrown":
            return json.dumps(params["exceptionDetails"])
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
            return json.dumps([one.get("value", one.get("description")) for one in params["args"]])
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    return None


class Page:
    def __init__(self, browser: Browser, session: str, context: str | None = None) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.complaints: list[str] = []

    async def close(self) -> None:
        """End a private page."""
        assert self._context is not None
        await self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **params)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression; `await` works in it."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, replMode=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptFailed(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Ask until the answer is true. A page that is just being loaded has no answer yet."""
        last: object = None
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                while True:
                    try:
                        last = await self.evaluate(script)
                    except AssertionError as error:
                        last = error
                    else:
                        if last:
                            return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"never true: {script}; last {last!r}; {self._browser.complaints}") from None

    async def reload(self) -> None:
        await self.call("Page.reload")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        process = await asyncio.create_subprocess_exec(
            *(program, *FLAGS, f"--user-data-dir={directory}", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            address = await _address(Path(directory) / "DevToolsActivePort", process)
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(address, max_msg_size=0) as socket,
            ):
                yield Browser(socket)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _address(port_file: Path, process: asyncio.subprocess.Process) -> str:
    """Chromium writes where its DevTools listen into a file: the port, and the path of the browser's own socket."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            assert process.returncode is None, f"chromium ended with {process.returncode}"
            lines = port_file.read_text().split("\n") if port_file.exists() else []
            if len(lines) >= 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.02)
