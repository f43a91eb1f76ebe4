"""The overview and the page of the server."""

import pytest

from tests.console.driver import CONSOLE, Console
from tests.support.access_commands import json_of
from tests.support.server import KwireProcess

pytestmark = [*CONSOLE, pytest.mark.only_server("the overview of a bridge is another one")]

LINES = "document.querySelectorAll('.chart path.line').length"


def test_the_overview_draws_live_charts(console: Console) -> None:
    console.open("/")
    console.wait_for("Overview")
    console.until(f"{LINES} >= 10")
    console.wait_for("Ready")
    console.until("/Groups\\n[1-9]/.test(document.querySelector('.figures').innerText)")
    console.until("/Consumer lag\\n[1-9]/.test(document.querySelector('.figures').innerText)")
    # The consumer of the shared load fetches what the producer appends.
    console.until("!/Fetched\\s*0\\/s/.test(document.querySelectorAll('.chart')[1].innerText)")
    console.screenshot("overview")
    print(f"overview: longest task {console.longest_task_ms():.0f} ms")


def test_the_server_page_shows_listeners_and_directories(console: Console) -> None:
    console.open("/server")
    console.wait_for("Data directories")
    console.wait_for("PLAINTEXT")
    console.screenshot("server")


def test_internal_topics_are_counted_apart(console: Console, console_server: KwireProcess) -> None:
    figures = "[...document.querySelectorAll('.figures > :first-child dd')].map(one => one.innerText)"
    console.open("/")
    # The groups of the shared load have created __consumer_offsets.
    console.until(f"/ and [1-9][0-9]* internal topics?$/.test({figures}[1]?.replaceAll('\\u00a0', ' '))")
    listed = len(json_of("topic", "list", "--bootstrap-server", console_server.bootstrap))
    console.until(f"{figures}[0] === '{listed}'")


def test_the_charts_of_a_wide_window_are_in_full_rows(console: Console) -> None:
    console.open("/")
    console.until(f"{LINES} >= 10")
    for width, columns in ((1920, 4), (1280, 2), (390, 1)):
        console.resize(width)
        tops = console.evaluate(
            "[...document.querySelectorAll('.chart-place')].map(one => Math.round(one.getBoundingClientRect().top))"
        )
        assert [tops.count(top) for top in dict.fromkeys(tops)] == [columns] * (len(tops) // columns), width
