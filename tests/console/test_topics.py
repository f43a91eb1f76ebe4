"""The list of topics, and the page of one topic."""

import pytest

from tests.console.driver import CONSOLE, Console

pytestmark = CONSOLE


def test_topics_are_listed_and_filtered(console: Console) -> None:
    console.open("/topics")
    console.wait_for("orders")
    console.wait_for("lobby")
    console.screenshot("topics")
    console.press("/")
    console.type("Filter Topics", "pay")
    console.wait_for("1 of ")
    assert "customers" not in console.text()
    assert console.path == "/console/topics?q=pay"


def test_a_topic_shows_its_partitions_and_settings(console: Console) -> None:
    console.open("/topics")
    console.click("orders")
    console.wait_for("First 50")
    assert console.path == "/console/topics/orders"
    console.click("Partitions")
    console.wait_for("Next offset")
    assert console.path == "/console/topics/orders/partitions"
    console.screenshot("topic")
    console.click("Settings")
    console.wait_for("retention.ms")
    assert console.path == "/console/topics/orders/settings"
    console.screenshot("topic-settings")


@pytest.mark.only_server("a bridge has no page of the server")
def test_keys_lead_to_pages_and_are_listed(console: Console) -> None:
    console.open("/topics")
    console.press("?")
    console.wait_for("Keyboard shortcuts")
    console.screenshot("keys")
    console.press("Escape")
    console.until("document.querySelector('dialog[open]') === null")
    console.press("g", "s")
    console.wait_for("Data directories")


def test_a_topic_is_created_changed_and_deleted(console: Console) -> None:
    console.open("/topics")
    console.click("Create topic")
    console.type("Name", "invoices")
    console.type("Partitions", "3")
    console.choose("Cleanup policy", "compact")
    console.wait_for("kwire topic create invoices --partitions 3 --config cleanup.policy=compact")
    console.screenshot("topic-create")
    console.press("Enter")
    console.wait_for("Topic invoices was created.")
    assert console.path == "/console/topics/invoices"

    console.click("Partitions")
    console.click("Add partitions")
    console.type("Partitions in total", "5")
    console.press("Enter")
    console.wait_for("Topic invoices has 5 partitions.")

    console.click("Settings")
    console.click("Edit retention.ms")
    console.type("Value", "seven days")
    console.press("Enter")
    console.wait_for("retention.ms")
    console.until("document.querySelector('.field-error').textContent.includes('seven days')")
    console.type("Value", "86400000")
    console.screenshot("topic-setting")
    console.press("Enter")
    console.wait_for("The setting retention.ms was changed.")
    console.wait_for("1 d")

    console.click("Delete")
    console.wait_for("This cannot be undone.")
    console.screenshot("topic-delete")
    console.type("Type invoices to confirm", "invoices")
    console.press("Enter")
    console.wait_for("Topic invoices was deleted.")
    console.until("location.pathname === '/console/topics'")
    console.until("document.querySelectorAll('table.data tbody tr').length > 0")
    assert "invoices" not in console.evaluate("document.querySelector('table.data').innerText")


def test_a_refused_topic_shows_the_error_of_the_server(console: Console) -> None:
    console.open("/topics")
    console.click("Create topic")
    console.type("Name", "orders")
    console.press("Enter")
    console.wait_for("already exists")
    console.press("Escape")
    console.until("document.querySelector('dialog') === null")
