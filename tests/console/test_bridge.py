"""The console of a bridge: the pages of what it serves, and an overview of its own."""

from tests.console.driver import CONSOLE, Console
from tests.support.bridge_process import BridgeProcess
from tests.support.http_json import ask

pytestmark = CONSOLE

LINES = "document.querySelectorAll('.chart path.line').length"
PAGES = "[...document.querySelectorAll('.side-nav a')].map(one => one.innerText)"


def test_the_overview_draws_live_charts(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    console = bridge_console
    console.open("/")
    console.wait_for("Overview")
    console.until(f"{LINES} >= 10")
    console.wait_for(f"over {console_bridge.upstream}")
    console.until("/Rooms\\n1\\n/.test(document.querySelector('.figures').innerText)")
    assert console.evaluate("document.title") == "Overview · kwire bridge"
    console.screenshot("bridge-overview")


def test_the_event_store_of_a_bridge_is_shown(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    url = console_bridge.http_url
    create = {"name": "invoices", "schemas": [{"eventType": "invoice.sent", "required": ["number"]}]}
    assert ask(f"{url}/topics", "POST", create).status == 201
    for number in (7, 8):
        event = {"topic": "invoices", "type": "invoice.sent", "payload": {"number": number}}
        assert ask(f"{url}/events", "POST", event).status == 201
    console = bridge_console
    console.open("/event-store")
    console.wait_for("invoice.sent")
    console.click("All events")
    console.wait_for("invoices-2")
    console.screenshot("bridge-event-store")
    console.open("/event-store/topics/invoices?event=invoices-2")
    console.wait_for("kwire event list invoices --since invoices-1 --limit 1")
    assert not console.evaluate("document.body.innerText.includes('Show the record')")


def test_only_pages_that_the_bridge_serves_are_offered(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    console = bridge_console
    console.open("/")
    console.until(f"{PAGES}.includes('Rooms')")
    offered = console.evaluate(PAGES)
    assert not {"Server", "Audit"} & set(offered)
    console.open("/server")
    console.wait_for("Not served by a bridge")
