"""The page-side client of the event store in a real browser, on a page of another origin: publish, follow, resume."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from kwire.client import AsyncClient, EventToStore
from tests.support.chromium import Browser, chromium
from tests.support.http_json import ask
from tests.support.node import in_loop
from tests.support.server import HOST, KwireProcess

pytestmark = pytest.mark.needs_chromium

# Follows everything from where it was before it was reloaded; what it has seen is kept as a page would keep it.
PAGE = """<!doctype html><title>events</title>
<script type="module">
const server = new URLSearchParams(location.search).get("server");
const { KwireClient } = await import(server + "/kwire.js");
window.client = new KwireClient(server);
window.seen = JSON.parse(sessionStorage.seen ?? "[]");
const kept = sessionStorage.position;
const options = kept === undefined ? { fromPosition: 0 } : { resume: JSON.parse(kept) };
const subscription = await window.client.events.subscribeAll(options);
window.isFollowing = true;
for await (const item of subscription) {
  if (item.kind === "gap") window.seen.push("gap");
  if (item.kind === "event") window.seen.push([item.position, item.id]);
  sessionStorage.seen = JSON.stringify(window.seen);
  sessionStorage.position = JSON.stringify(subscription.position);
}
</script>"""


@asynccontextmanager
async def page_and_browser(directory: Path) -> AsyncIterator[tuple[KwireProcess, Browser, str]]:
    async def show(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", show)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    origin = f"http://{HOST}:{runner.addresses[0][1]}"
    server = KwireProcess(directory, settings={"kwire.http.origins": origin})
    server.start()
    try:
        async with chromium() as browser:
            await asyncio.to_thread(server.ready)
            for name in ("a", "b"):
                made = ask(f"{server.http_url}/topics", "POST", {"name": name, "schemas": [{"eventType": "made"}]})
                assert made.status == 201, made.body
            yield server, browser, origin
    finally:
        server.kill()
        await runner.cleanup()


@pytest.mark.proves("S2-6", "S3-6")
@in_loop
async def test_a_page_that_is_reloaded_and_outlives_its_server_sees_every_event_once(tmp_path: Path) -> None:
    async with page_and_browser(tmp_path) as (server, browser, origin), AsyncClient(server.http_url) as other:
        page = await browser.open(f"{origin}/?server={server.http_url}")
        await page.until("window.isFollowing")

        # Another origin's page may publish, with its idempotency key.
        published = await page.evaluate(
            """
            const made = (topic, payload) => ({ topic, type: "made", payload });
            const first = await client.events.publishMany([made("a", 1), made("b", 2)], { idempotencyKey: "k" });
            const again = await client.events.publishMany([made("a", 1), made("b", 2)], { idempotencyKey: "k" });
            const wrong = await client.events.publish("a", "made", 3, { expectedVersion: 5 }).catch(({ code }) => code);
            [first, again, wrong, (await client.events.last("a")).version];
            """
        )
        assert published == [["a-1", "b-1"], ["a-1", "b-1"], "WrongExpectedVersion", 0]
        await page.until("seen.length === 2")

        ids = ["a-1", "b-1"]

        async def write(count: int) -> None:
            for number in range(count):
                ids.extend(
                    await other.events.publish_many([EventToStore(topic, "made", number) for topic in ("b", "a", "b")])
                )

        # Others write before, while and after the page is reloaded.
        writing = asyncio.create_task(write(60))
        await page.until("seen.length > 20")
        await page.reload()
        await writing
        await write(5)
        await page.until(f"seen.length >= {len(ids)}")
        assert await page.evaluate("seen") == [[position, one] for position, one in enumerate(ids)]

        # The server dies and comes back while the page is open.
        server.kill()
        await asyncio.to_thread(server.restart)
        await write(5)
        await page.until(f"seen.length >= {len(ids)}")
        assert await page.evaluate("seen") == [[position, one] for position, one in enumerate(ids)]
        assert browser.complaints == []


@pytest.mark.proves("S3-7")
@in_loop
async def test_a_page_follows_one_topic_and_is_told_of_its_end(tmp_path: Path) -> None:
    async with page_and_browser(tmp_path) as (server, browser, origin):
        page = await browser.open(f"{origin}/?server={server.http_url}")
        await page.until("window.isFollowing")
        seen = await page.evaluate(
            """
            for (const topic of ["a", "b", "a", "b", "a"]) await client.events.publish(topic, "made", topic);
            const stream = await client.events.subscribeStream("a", { fromVersion: 1 });
            const versions = [(await stream.nextEvent()).version, (await stream.nextEvent()).version];
            const mark = await stream.next();
            await fetch(client.events.settings.url + "/topics/a", { method: "DELETE" });
            const end = await stream.next().catch((error) => error.code);
            [versions, mark.kind, mark.offset, end];
            """
        )
        assert seen == [[1, 2], "caught_up", 2, "TopicNotFound"]
        # EventSource, which every browser has, reads the same stream without any module.
        ids = await page.evaluate(
            """
            await new Promise((resolve) => {
              const source = new EventSource(client.events.settings.url + "/subscribe/streams/b?from=0");
              const ids = [];
              source.onmessage = (message) => ids.push([message.lastEventId, JSON.parse(message.data).id]);
              source.addEventListener("caught_up", () => { source.close(); resolve(ids); });
            });
            """
        )
        assert ids == [["0", "b-1"], ["1", "b-2"]]
        assert browser.complaints == []
