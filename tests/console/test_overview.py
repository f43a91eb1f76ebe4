"""The overview and the page of the server."""

from tests.console.driver import CONSOLE, Console

pytestmark = CONSOLE

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
