"""The console of a bridge: the pages of what it serves, and an overview of its own."""

from tests.console.data import commit_offset, create_topic, order, produce
from tests.console.driver import CONSOLE, Console
from tests.support.bridge_process import BridgeProcess
from tests.support.http_json import ask
from tests.support.rest_groups import RestGroups

pytestmark = CONSOLE

DASH = "\N{EN DASH}"
LINES = "document.querySelectorAll('.chart path.line').length"
ROWS = "[...document.querySelectorAll('table.data tbody tr:not(.space)')]"
PAGES = "[...document.querySelectorAll('.side-nav a')].map(one => one.innerText)"


def test_the_overview_draws_live_charts(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    console = bridge_console
    console.open("/")
    console.wait_for("Overview")
    console.until(f"{LINES} >= 10")
    console.wait_for(f"over {console_bridge.upstream}")
    console.until("/Rooms\\n1\\n/.test(document.querySelector('.figures').innerText)")
    assert console.evaluate("document.title") == "Overview · kwire bridge"
    console.screenshot("overview")


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
    console.screenshot("event-store")
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


def test_the_pages_of_groups_show_and_change_those_of_the_cluster(
    bridge_console: Console, console_bridge: BridgeProcess
) -> None:
    create_topic(console_bridge, "orders", 2)
    produce(console_bridge, "orders", [order(number) for number in range(40)])
    commit_offset(console_bridge, "billing", "orders", 5)
    console = bridge_console
    console.open("/groups")
    console.wait_for("Empty")
    console.click("billing")
    console.wait_for("oldest unread record")
    assert console.path == "/console/groups/billing"
    assert "1970" not in console.text()
    console.screenshot("group")
    console.click("Reset offsets")
    console.wait_for("5 again")
    console.choose("Move to", "a number of records forward or back")
    console.type("Records (negative: back)", "-2")
    console.wait_for("2 again")
    console.click("Reset offsets")
    console.wait_for("Reset 1 offset of billing.")
    url = f"{console_bridge.http_url}/api/v1/groups/billing"
    assert ask(url).body["offsets"][0]["committed_offset"] == 3
    console.click("Delete")
    console.wait_for("1 committed offset")
    console.type("Type billing to confirm", "billing")
    console.click("Delete group")
    console.wait_for("Group billing was deleted.")
    console.until("location.pathname === '/console/groups'")
    assert ask(url).status == 404


def test_a_group_with_http_members_shows_them(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    rest = RestGroups(console_bridge)
    rest.create_topic("payments", 3)
    rest.create("shipping", "payments")
    member = rest.join("shipping")
    try:
        assert rest.settled("shipping", [member]) == [[0, 1, 2]]
        console = bridge_console
        console.open("/groups/shipping/members")
        console.wait_for(member)
        console.wait_for("payments 0-2")
        console.click("Reset offsets")
        console.wait_for("Stop its consumers before you reset its offsets.")
    finally:
        rest.ask("DELETE", f"/consumer-groups/shipping/members/{member}/leave")


def test_topics_of_the_cluster_are_listed(bridge_console: Console, console_bridge: BridgeProcess) -> None:
    create_topic(console_bridge, "parcels", 3, cleanup_policy="compact")
    console = bridge_console
    console.open("/topics")
    console.wait_for("parcels")
    # Sizes are not known, and the time of the creation of rooms only.
    assert "Size" not in console.text()
    rows = console.evaluate(f"{ROWS}.map(row => [...row.cells].map(one => one.innerText))")
    cells = {row[0]: row[1:] for row in rows}
    assert cells["parcels"] == ["topic", "3", "compact", "", DASH]
    assert cells["lobby"][:2] == ["room", "1"]
    assert cells["lobby"][-1].startswith("2")
    assert "Internal" not in console.text()
    console.screenshot("topics")
    console.click("parcels")
    console.until("document.querySelector('main [role=tab]') !== null")
    tabs = console.evaluate("[...document.querySelectorAll('main [role=tab]')].map(one => one.innerText)")
    assert tabs[:3] == ["Records", "Partitions", "Settings"]
    assert "Segments" not in tabs
