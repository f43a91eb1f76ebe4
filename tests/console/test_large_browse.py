"""A browse over a million records: the page shows the progress, can cancel, and stays responsive."""

import pytest

from tests.console.data import create_topic
from tests.console.driver import CONSOLE, Console
from tests.support.clients_raw import RawConnection, batch, produce_request, produced
from tests.support.server import KwireProcess

pytestmark = [*CONSOLE, pytest.mark.only_server("a million records are sent in raw requests to one broker")]

RECORD_COUNT = 1_000_000
RECORDS_PER_BATCH = 5_000
PRODUCE_VERSION = 7
# A browser that is blocked for longer feels slow. On a quiet machine the longest task takes a quarter of this.
LONGEST_TASK_MS = 500.0
# The rows of the document: those of a tall window, and some above and below.
ROWS_MAX = 100
ROWS = "document.querySelectorAll('table.data tbody tr:not(.space)').length"
# The page keeps at most this many records (KEPT_MAX of js/pages/topic/records/scan.js).
KEPT_MAX = 5_000


@pytest.fixture(scope="module")
def large_topic(console_server: KwireProcess) -> str:
    create_topic(console_server, "million")
    values = [b'{"number":%d,"kind":"event"}' % number for number in range(RECORDS_PER_BATCH)]
    request = produce_request("million", batch(*values))
    with RawConnection(console_server.kafka_address) as connection:
        for _ in range(RECORD_COUNT // RECORDS_PER_BATCH):
            assert produced(connection.call(request, PRODUCE_VERSION)).error_code == 0
    return "million"


def test_a_browse_over_a_million_records_stays_responsive(console: Console, large_topic: str) -> None:
    console.open(f"/topics/{large_topic}?from=oldest&value=nowhere")
    console.wait_for("Complete")
    console.wait_for("1,000,000 scanned")
    console.wait_for("0 matched")
    scan_ms = console.longest_task_ms()

    console.choose("Limit", "5,000")
    console.type("Value contains", "event")
    console.click("Browse")
    console.wait_for("First 5,000")
    assert console.evaluate(ROWS) <= ROWS_MAX
    console.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    console.until("[...document.querySelectorAll('table.data tbody tr')].some(one => one.dataset.key === '0/4999')")
    console.click("Load more")
    console.wait_for(f"The page keeps {KEPT_MAX:,} records")
    longest_ms = console.longest_task_ms()
    print(f"a million records: longest task {scan_ms:.0f} ms in the scan, {longest_ms:.0f} ms with 10,000 records")
    assert longest_ms < LONGEST_TASK_MS


def test_a_scan_is_cancelled(console: Console, large_topic: str) -> None:
    console.open(f"/topics/{large_topic}?from=oldest&path=$.kind&path_text=nothing")
    console.wait_for("records/s")
    console.click("Cancel")
    console.wait_for("Cancelled")
    console.screenshot("topic-cancelled")
