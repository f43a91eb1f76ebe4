"""The list of groups, a group with its lag and its members, and the reset of its offsets."""

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer

from tests.console.data import commit_offset
from tests.console.driver import CONSOLE, Console
from tests.support.http_json import ask
from tests.support.server import KwireProcess

pytestmark = [*CONSOLE, pytest.mark.only_server("the pages of groups", path="/api/v1/groups")]

JOIN_POLL_MS = 10_000


@pytest.fixture
def member(console_server: KwireProcess) -> Iterator[KafkaConsumer]:
    """A running consumer of the group `shipping`."""
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=console_server.bootstrap, group_id="shipping", auto_offset_reset="earliest"
    )
    try:
        consumer.poll(timeout_ms=JOIN_POLL_MS, max_records=10)
        consumer.commit()
        yield consumer
    finally:
        consumer.close()


def test_groups_are_listed_with_their_lag(console: Console) -> None:
    console.open("/groups")
    console.wait_for("billing")
    console.wait_for("Empty")
    console.screenshot("groups")
    console.click("billing")
    console.wait_for("oldest unread record")
    console.resize(390)
    assert console.evaluate("brokenRemarks()") == []
    assert console.path == "/console/groups/billing"
    assert "orders" in console.text()
    console.screenshot("group")


def test_a_topic_of_a_group_is_on_one_line(console: Console, console_server: KwireProcess) -> None:
    commit_offset(console_server, "ledger", "payments", 0)
    console.open("/groups/ledger")
    console.wait_for("Committed at")
    console.screenshot("group-payments")


def test_a_running_group_shows_its_members(console: Console, member: KafkaConsumer) -> None:
    console.open("/groups/shipping/members")
    console.wait_for("kafka-python")
    console.wait_for("orders 0-5")
    console.screenshot("group-members")
    console.click("Reset offsets")
    console.wait_for("Stop its consumers before you reset its offsets.")


def test_a_reset_shows_what_it_will_do_and_does_it(console: Console, console_server: KwireProcess) -> None:
    commit_offset(console_server, "reset-me", "orders", 20)
    console.open("/groups/reset-me")
    console.click("Reset offsets")
    console.wait_for("20 again")
    console.wait_for("kwire group reset reset-me --to-earliest --execute")
    console.screenshot("group-reset")
    console.choose("Move to", "a number of records forward or back")
    console.type("Records (negative: back)", "-5")
    console.wait_for("5 again")
    console.click("Reset offsets")
    console.wait_for("Reset 1 offset of reset-me.")
    assert committed(console_server, "reset-me") == 15
    console.click("Reset offsets")
    console.choose("Move to", "a point in time")
    console.wait_for("--to-datetime TIME")
    console.choose("Move to", "the first offset")
    console.wait_for("15 again")


def committed(server: KwireProcess, group: str) -> int:
    offset: int = ask(f"{server.http_url}/api/v1/groups/{group}").body["offsets"][0]["committed_offset"]
    return offset


def test_a_group_is_deleted_after_its_name_is_typed(console: Console, console_server: KwireProcess) -> None:
    commit_offset(console_server, "old", "orders", 3)
    console.open("/groups/old")
    console.click("Delete")
    console.wait_for("1 committed offset")
    console.screenshot("group-delete")
    console.type("Type old to confirm", "old")
    console.click("Delete group")
    console.wait_for("Group old was deleted.")
    console.until("location.pathname === '/console/groups'")
    assert ask(f"{console_server.http_url}/api/v1/groups/old").status == 404
