"""The page at /docs in a real browser: a room is followed, an operation tried, a path found, and nothing complains."""

from pathlib import Path

import pytest

from tests.support.chromium import Page, chromium
from tests.support.http_json import ask
from tests.support.node import in_loop
from tests.support.server import KwireProcess

pytestmark = pytest.mark.needs_chromium

EVENTS = "[...document.querySelectorAll('#events li.new')].map(line => line.querySelector('.what').textContent)"
CARD = "document.getElementById('put-rooms-room')"


async def submit(page: Page, form: str) -> None:
    await page.evaluate(f"{form}.requestSubmit()")


@in_loop
async def test_the_page_follows_a_room_tries_an_operation_and_finds_a_path(tmp_path: Path) -> None:
    server = KwireProcess(tmp_path)
    server.restart()
    try:
        async with chromium() as browser:
            page = await browser.open(f"{server.http_url}/docs")
            await page.until("document.getElementById('ready').textContent === 'ready'")

            # A room: follow it, publish by the form, and see what another client publishes.
            await submit(page, "document.getElementById('join')")
            await page.until("document.getElementById('room-state').textContent === 'live, caught up'")
            await submit(page, "document.getElementById('publish')")
            await page.until("document.getElementById('publish-answer').textContent.startsWith('Stored at offset 0')")
            ask(f"{server.http_url}/rooms/lobby/events", "POST", {"event_type": "join", "data": "<b>bob</b>"})
            await page.until(f"{EVENTS}.length === 2")
            assert await page.evaluate(EVENTS) == [
                'message{"user":"alice","text":"Hello everyone!"}',
                'join"<b>bob</b>"',
            ]

            # Every operation of the description is shown; one of them is tried.
            described = ask(f"{server.http_url}/openapi.json").body["paths"]
            count = sum(len(operations) for operations in described.values())
            assert await page.evaluate("document.querySelectorAll('details.operation').length") == count
            await page.evaluate(f"{CARD}.open = true")
            await page.until(f"{CARD}.querySelector('form.try') !== null")
            await submit(page, f"{CARD}.querySelector('form.try')")
            await page.until(f"{CARD}.querySelector('.status').textContent.startsWith('200 OK')")
            answer = f"{CARD}.querySelector('[aria-label=Answer]').textContent"
            await page.until(f"{answer}.includes('\"newest_offset\": 1')")

            # Opening each of them builds its form, whatever its schemas are.
            await page.evaluate("for (const card of document.querySelectorAll('details.operation')) card.open = true")
            await page.until(f"document.querySelectorAll('form.try').length === {count}")

            await page.evaluate("const find = document.getElementById('find'); find.value = 'healthz';")
            await page.evaluate("document.getElementById('find').dispatchEvent(new Event('input'))")
            assert await page.evaluate("document.querySelectorAll('details.operation:not([hidden])').length") == 1
            assert browser.complaints == []
    finally:
        server.kill()
