"""The list of topics with 10,000 topics: it is complete, and the browser stays responsive."""

from collections.abc import Iterator

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from tests.console.driver import CONSOLE, BrowserThread, Console
from tests.support.server import KwireProcess

pytestmark = CONSOLE

TOPIC_COUNT = 10_000
TOPICS_PER_REQUEST = 2000
# A browser that is blocked for longer feels slow. On a quiet machine the longest task takes a quarter of this.
LONGEST_TASK_MS = 500.0
# The rows of the document: those of a tall window, and some above and below.
ROWS_MAX = 100

SHOWN = "[...document.querySelectorAll('table.data tbody tr:not(.space)')].map(row => row.dataset.key)"


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    server = KwireProcess(tmp_path_factory.mktemp("many-topics"))
    server.restart()
    try:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        names = [f"topic-{number:05}" for number in range(TOPIC_COUNT)]
        for first in range(0, TOPIC_COUNT, TOPICS_PER_REQUEST):
            admin.create_topics([NewTopic(name, 1, 1) for name in names[first : first + TOPICS_PER_REQUEST]])
        admin.close()
        yield server
    finally:
        server.kill()


@pytest.fixture
def console(browser: BrowserThread, large_server: KwireProcess) -> Iterator[Console]:
    with browser.console(large_server.http_url) as opened:
        yield opened


def test_ten_thousand_topics_stay_responsive(console: Console) -> None:
    console.open("/topics")
    console.wait_for("10,000 topics")
    assert console.evaluate(SHOWN)[0] == "topic-00000"
    assert len(console.evaluate(SHOWN)) <= ROWS_MAX

    console.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
    console.until(f"{SHOWN}.includes('topic-05000')")
    console.screenshot("many-topics", is_whole=False)
    console.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    console.until(f"{SHOWN}.includes('topic-09999')")
    assert len(console.evaluate(SHOWN)) <= ROWS_MAX

    console.press("/")
    console.type("Filter Topics", "0777")
    console.wait_for("of 10,000 topics")
    assert "topic-07770" in console.evaluate(SHOWN)
    console.type("Filter Topics", "")
    console.click("Partitions")
    console.until("document.querySelector('th[aria-sort=descending]') !== null")
    # The browser reports tasks of 50 ms and more; 0 means that there was none.
    print(f"10,000 topics: longest task {console.longest_task_ms():.0f} ms")
    assert console.longest_task_ms() < LONGEST_TASK_MS
