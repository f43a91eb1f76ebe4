"""The tabs of a topic besides its records: partitions, settings, segments, groups; and what a session may do."""

import pytest

from tests.console.data import commit_offset, create_topic, produce
from tests.console.driver import CONSOLE, Console
from tests.support.engines import OVER_APACHE
from tests.support.http_json import ask
from tests.support.server import KwireProcess

pytestmark = CONSOLE

RECORD_COUNT = 30


def fill_topic(server: KwireProcess, name: str, size_bytes: int = 200) -> None:
    produce(server, name, [{"customer": f"customer-{one}", "text": "x" * size_bytes} for one in range(RECORD_COUNT)])


def test_records_are_deleted_after_a_preview(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "trimmed")
    fill_topic(console_server, "trimmed")
    console.open("/topics/trimmed/partitions")
    console.wait_for("Next offset")
    console.screenshot("topic-partitions")
    console.click("Delete records of partition 0")
    console.type("Offset", "10")
    console.wait_for("kwire topic trim trimmed --before 10 --partition 0")
    console.screenshot("topic-delete-records")
    console.click("Continue")
    console.wait_for("10 offsets of 1 partition can no longer be read.")
    console.wait_for("0 to 9")
    console.screenshot("topic-delete-records-confirm")
    console.type("Type trimmed to confirm", "trimmed")
    console.click("Delete records")
    console.wait_for("Records of trimmed were deleted.")
    stats = ask(f"{console_server.http_url}/topics/trimmed/stats").body["partitions"][0]
    assert stats["min_offset"] == 10
    console.click("Delete records")
    console.choose("Delete the records before", "the end: all records")
    console.wait_for("kwire topic trim trimmed --before latest")
    console.click("Continue")
    console.wait_for("20 offsets of 1 partition can no longer be read.")


def test_a_setting_is_changed_and_reset(
    console: Console, console_server: KwireProcess, request: pytest.FixtureRequest
) -> None:
    create_topic(console_server, "tuned", retention_ms="86400000")
    console.open("/topics/tuned/settings")
    console.click("Overridden 1")
    # Apache Kafka does not tell defaults that no broker has in its file.
    console.wait_for("1 d" if OVER_APACHE in request.node.name else "default: 604800000")
    console.screenshot("topic-settings-overridden")
    # The documentation of Apache Kafka is HTML.
    console.click("All")
    assert not console.evaluate("/<[a-z/]/.test(document.body.innerText)")
    console.click("Overridden 1")
    console.click("Reset retention.ms")
    console.wait_for("kwire topic alter tuned --delete-config retention.ms")
    console.screenshot("topic-setting-reset")
    console.click("Reset")
    console.wait_for("The setting retention.ms was changed.")
    console.wait_for("Overridden 0")
    configs = ask(f"{console_server.http_url}/topics/tuned").body["configs"]
    assert configs["retention.ms"] == "604800000"


@pytest.mark.only_server("the segments are those of the brokers")
def test_segments_are_listed_with_their_state(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "segmented", segment_bytes="1048576")
    for _ in range(4):
        fill_topic(console_server, "segmented", 25_000)
    console.open("/topics/segmented/segments")
    console.wait_for("active")
    console.wait_for("sealed")
    console.screenshot("topic-segments")
    found = ask(f"{console_server.http_url}/topics/segmented/partitions/0/segments").body
    assert f"{found['segment_count']} segments" in console.text()


@pytest.mark.only_server("the pages of groups", path="/api/v1/groups")
def test_groups_that_read_a_topic_are_listed_with_their_lag(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "followed")
    fill_topic(console_server, "followed")
    commit_offset(console_server, "follower", "followed", 12)
    console.open("/topics/followed/groups")
    console.wait_for("follower")
    console.wait_for("18")
    console.wait_for("1 of 1")
    assert "billing" not in console.text()
    console.screenshot("topic-groups")
    console.click("follower")
    console.until("location.pathname === '/console/groups/follower'")
