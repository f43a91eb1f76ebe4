"""The records of a topic: browse, filters, a live view, one record, and producing records."""

import base64
import subprocess

from tests.console.data import create_topic, produce
from tests.console.driver import CONSOLE, Console
from tests.support.http_json import ask
from tests.support.server import KwireProcess, kwire_command

pytestmark = CONSOLE

COMMAND_TIMEOUT_S = 30
TEXT_RECORDS = "application/vnd.kafka.text.v2+json"
ROWS = "document.querySelectorAll('table.data tbody tr:not(.space)').length"
COMMAND = "document.querySelector('.command pre').innerText"


def run(server: KwireProcess, command: str) -> str:
    """Run a command line that the console shows, in a shell."""
    environment = {
        "PATH": f"{kwire_command().parent}:/usr/bin:/bin",
        "HOME": str(server.data_dir),
        "KWIRE_BOOTSTRAP_SERVER": server.bootstrap,
    }
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def test_the_newest_records_are_shown_at_once(console: Console, console_server: KwireProcess) -> None:
    console.open("/topics/orders")
    console.wait_for("First 50")
    assert console.evaluate(ROWS) == 50
    console.wait_for("customer-")
    console.screenshot("topic-records")
    assert len(run(console_server, console.evaluate(COMMAND)).splitlines()) == 50
    console.click("Load more")
    console.wait_for("First 100")


def test_filters_run_on_the_server_and_stay_in_the_address(console: Console) -> None:
    console.open("/topics/orders")
    console.choose("Start", "oldest")
    console.choose("Limit", "200")
    console.click("Filters")
    console.type("JSON path", "$.lines[0].sku")
    console.type("Text or number", "sku-3")
    console.click("Browse")
    console.wait_for("Complete")
    console.wait_for("500 scanned")
    # Orders 3, 10, 17 …
    console.wait_for("71 matched")
    assert "path_text=sku-3" in console.path
    console.screenshot("topic-filter")
    console.type("JSON path", "$.lines[")
    console.click("Browse")
    console.until("[...document.querySelectorAll('.field-error')].some(one => one.textContent.startsWith('path'))")
    console.expect_error("400")


def test_a_browse_starts_at_a_time_or_an_offset_in_some_partitions(console: Console) -> None:
    console.open("/topics/orders?from=time&time=2020-01-01T00:00:00&partition=0,2&limit=1000")
    console.wait_for("Complete")
    keys = console.evaluate(
        "[...document.querySelectorAll('table.data tbody tr:not(.space)')].map(row => row.dataset.key)"
    )
    assert {key.split("/")[0] for key in keys} == {"0", "2"}
    assert "0/0" in keys
    console.choose("Start", "an offset")
    console.type("Offset", "30")
    console.type("Partitions", "0")
    console.click("Browse")
    console.until("document.querySelector('table.data tbody tr')?.dataset.key === '0/30'")
    console.wait_for("kwire topic consume orders --from 30 --partition 0")
    console.check_commands()


def test_a_record_is_shown_as_a_tree_text_and_bytes(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "parts")
    value = '{"id": 12345678901234567890, "text": "' + "x" * 5000 + '"}'
    records = [
        {"key": "short", "value": '{"id": 12345678901234567890, "tags": ["a", "b"]}'},
        {"key": "long", "value": value, "headers": [{"key": "trace", "value": base64.b64encode(b"abc").decode()}]},
    ]
    answer = ask(f"{console_server.http_url}/topics/parts", "POST", {"records": records}, TEXT_RECORDS)
    assert answer.status == 200, answer
    console.open("/topics/parts?from=oldest")
    console.click("Record 0/0")
    console.wait_for("12345678901234567890")
    console.screenshot("topic-record")
    console.click("Record below")
    console.wait_for("Only the beginning is shown.")
    assert "trace" in console.text()
    console.click("Load the whole record")
    console.wait_until_gone("Only the beginning is shown.")
    console.wait_for("12345678901234567890")
    console.until("findControl('Hex') !== null")
    console.evaluate(
        "[...document.querySelectorAll('dialog button')].filter(one => one.innerText === 'Hex')[1].click()"
    )
    console.wait_for("7b 22 69 64")
    console.screenshot("topic-record-bytes")
    assert '"offset":1' in run(console_server, console.evaluate(f"document.querySelector('dialog {COMMAND[24:]}"))


def test_a_live_view_shows_new_records_on_top(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "live")
    console.open("/topics/live")
    console.wait_for("No records")
    console.click("Live")
    console.until("document.querySelector('.badge.good')?.innerText === 'Live'")
    for number in range(3):
        produce(console_server, "live", [{"customer": f"customer-{number}", "id": number}])
    console.wait_for("customer-2")
    first = console.until("document.querySelector('table.data tbody tr')?.dataset.key")
    assert first == "0/2"
    console.screenshot("topic-live")
    console.click("Cancel")
    console.wait_for("Cancelled")


def test_records_are_produced_and_their_offsets_are_shown(console: Console, console_server: KwireProcess) -> None:
    create_topic(console_server, "produced", 3)
    console.open("/topics/produced")
    console.click("Produce")
    console.type("Content of the value", "{not json")
    console.click("Produce")
    console.until("document.querySelector('dialog .field-error:not(:empty)') !== null")
    console.type("Key", "it's")
    console.type("Content of the value", '{"id": 1, "name": "it\'s"}')
    console.type("Headers", "source=console\ntrace=7")
    console.type("Partition", "2")
    console.click("Produce")
    console.wait_for("partition 2, offset 0")
    console.screenshot("topic-produce")
    run(console_server, console.evaluate("document.querySelector('dialog .command pre').innerText"))
    console.choose("Records", "several, as JSON lines")
    console.type("JSON lines", '{"key": "a", "value": "one"}\n{"value": {"n": 12345678901234567890}, "partition": 1}')
    console.click("Produce")
    console.wait_for("2 records stored")
    console.screenshot("topic-produce-lines")
    console.press("Escape")
    console.wait_for("12345678901234567890")
    found = ask(f"{console_server.http_url}/topics/produced/partitions/2/records/1?encoding=text").body
    assert found["key"]["data"] == "it's"
    assert found["value"]["data"] == '{"id": 1, "name": "it\'s"}'
    assert [one["name"] for one in found["headers"]] == ["source", "trace"]
