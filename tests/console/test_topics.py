"""The list of topics, and the page of one topic."""

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
    console.wait_for("Next offset")
    assert console.path == "/console/topics/orders"
    console.screenshot("topic")
    console.click("Settings")
    console.wait_for("retention.ms")
    assert console.path == "/console/topics/orders/settings"
    console.screenshot("topic-settings")


def test_keys_lead_to_pages_and_are_listed(console: Console) -> None:
    console.open("/topics")
    console.press("?")
    console.wait_for("Keyboard shortcuts")
    console.screenshot("keys")
    console.press("Escape")
    console.press("g", "s")
    console.wait_for("Data directories")
