"""The page-side client in a real browser: the chat example, reloaded and cut off while others write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from kwire.client import AsyncClient, NewEvent
from tests.support.chromium import Browser, chromium
from tests.support.node import in_loop
from tests.support.server import HOST, KwireProcess

WAIT_S = 60.0
OFFSETS = "[...document.querySelectorAll('.message')].map(line => Number(line.dataset.offset))"
EMPTY_PAGE = "<!doctype html><title>a page of another origin</title>"

pytestmark = pytest.mark.needs_chromium


@asynccontextmanager
async def other_origin() -> AsyncIterator[str]:
    """A page on a port of its own: another origin than the server's."""

    async def show(request: web.Request) -> web.Response:
        return web.Response(text=EMPTY_PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", show)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def server_and_browser(directory: Path) -> AsyncIterator[tuple[KwireProcess, Browser, str]]:
    """The page of the other origin may use the server."""
    async with other_origin() as origin:
        server = KwireProcess(directory, settings={"kwire.http.origins": origin})
        server.start()
        try:
            async with chromium() as browser:
                await asyncio.to_thread(server.ready)
                yield server, browser, origin
        finally:
            server.kill()


@pytest.mark.proves("S0-53", "S0-27")
@in_loop
async def test_a_page_that_publishes_is_reloaded_and_outlives_its_server_misses_no_message(tmp_path: Path) -> None:
    async with server_and_browser(tmp_path) as (server, browser, _), AsyncClient(server.http_url) as other:
        page = await browser.open(f"{server.http_url}/examples/chat?user=alice")
        await page.until("document.querySelector('.room-state').textContent === 'Live'")

        # Publish by the form, as a person does.
        await page.evaluate("document.querySelector('.compose input').value = 'Hello!'")
        await page.evaluate("document.querySelector('.compose').requestSubmit()")
        await page.until(f"{OFFSETS}.length === 1")
        assert await page.evaluate("document.querySelector('.bubble').textContent") == "Hello!"

        async def talk(count: int) -> None:
            for _ in range(count):
                await other.stream.publish("chat-room-1", "message", {"user": "bob", "text": "hi"})

        # Others write before, while and after the page is reloaded.
        talking = asyncio.create_task(talk(100))
        await page.until(f"{OFFSETS}.length > 20")
        await page.reload()
        await talking
        await talk(10)
        await page.until(f"{OFFSETS}.length >= 111")
        assert await page.evaluate(OFFSETS) == list(range(111))

        # The server dies and comes back while the page is open.
        server.kill()
        await asyncio.to_thread(server.restart)
        await talk(10)
        await page.until(f"{OFFSETS}.length >= 121")
        assert await page.evaluate(OFFSETS) == list(range(121))
        assert browser.complaints == []


@in_loop
async def test_the_module_works_on_the_servers_own_pages_and_reads_long_history(tmp_path: Path) -> None:
    async with server_and_browser(tmp_path) as (server, browser, _), AsyncClient(server.http_url) as other:
        for first in range(0, 3_000, 1_000):
            await other.stream.publish_many("long", [NewEvent("n", first + more) for more in range(1_000)])
        page = await browser.open(f"{server.http_url}/docs")
        await page.until("document.readyState === 'complete' && location.pathname === '/docs'")
        seen = await page.evaluate(
            """
            const { KwireClient } = await import("/kwire.js");
            const client = new KwireClient();
            const seen = [];
            for await (const item of await client.stream.subscribe("long", { fromOffset: 0 })) {
              if (item.kind === "caught_up") break;
              seen.push(item.data);
            }
            client.close();
            seen;
            """
        )
        assert seen == list(range(3_000))


@in_loop
async def test_a_page_of_an_origin_that_is_listed_publishes_and_subscribes(tmp_path: Path) -> None:
    async with server_and_browser(tmp_path) as (server, browser, origin):
        page = await browser.open(f"{origin}/")
        await page.until(f"document.readyState === 'complete' && location.origin === '{origin}'")
        seen = await page.evaluate(
            f"""
            const {{ KwireClient }} = await import("{server.http_url}/kwire.js");
            const client = new KwireClient();
            const subscription = await client.stream.subscribe("from-elsewhere", {{ fromOffset: 0 }});
            await client.stream.publish("from-elsewhere", "message", "hello");
            const event = await subscription.nextEvent();
            client.close();
            event.data;
            """
        )
        assert seen == "hello"


@in_loop
async def test_a_page_of_an_origin_that_is_not_listed_gets_nothing(tmp_path: Path) -> None:
    async with server_and_browser(tmp_path) as (server, browser, origin):
        stranger = origin.replace(HOST, "localhost")
        page = await browser.open(f"{stranger}/")
        await page.until("document.readyState === 'complete' && location.hostname === 'localhost'")
        refused = await page.evaluate(
            f"""
            await new Promise((resolve) => {{
              const socket = new WebSocket("{server.http_url.replace("http", "ws", 1)}/ws");
              socket.onopen = () => resolve(false);
              socket.onerror = () => resolve(true);
            }});
            """
        )
        assert refused
