"""The overview and the page of the server."""

from tests.console.driver import CONSOLE, Console

pytestmark = CONSOLE

LINES = "document.querySelectorAll('.chart path.line').length"


def test_the_overview_draws_live_charts(console: Console) -> None:
    console.open("/")
    console.wait_for("Overview")
    console.until(f"{LINES} >= 10")
    console.wait_for("Ready")
    # Other tests on this server make further groups.
    console.until("/Groups\\n([2-9]|\\d\\d)/.test(document.querySelector('.figures').innerText)")
    console.until("/Consumer lag\\n[1-9]/.test(document.querySelector('.figures').innerText)")
    console.screenshot("overview")
    print(f"overview: longest task {console.longest_task_ms():.0f} ms")


def test_the_server_page_shows_listeners_and_directories(console: Console) -> None:
    console.open("/server")
    console.wait_for("Data directories")
    console.wait_for("PLAINTEXT")
    console.screenshot("server")
