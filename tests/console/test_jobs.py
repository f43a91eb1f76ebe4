"""The pages of Spark jobs: reports as jobs send them are listed, drawn and continued live."""

from kwire.client import Client, NewEvent
from kwire.pipeline.batch_facts import BatchFacts
from kwire.pipeline.reports.job_reports import ALIVE, DONE, FAILED, JOB, QUERY, QueryState
from kwire.pipeline.reports.sender import RETENTION, ROOM
from tests.console.driver import CONSOLE, Console
from tests.console.job_reports import job, time_before
from tests.support.server import KwireProcess

pytestmark = CONSOLE

REASON = "kwire.orders: the table has no column total, and --bad-rows is stop"
LINES = "document.querySelectorAll('.chart path.line').length"


class Query:
    """The reports of a query, made as the job makes them."""

    def __init__(self, run: str, name: str, query: str) -> None:
        self._run = {"run": run, "job": name}
        self._state = QueryState(query)

    def batch(self, number: int, lag: int) -> NewEvent:
        progress = {
            "name": self._state.query,
            "batchId": number,
            "inputRowsPerSecond": 900.0 + 40 * (number % 5),
            "processedRowsPerSecond": 1500.0 - 60 * (number % 7),
            "durationMs": {"triggerExecution": 700 + 90 * (number % 4)},
            "sources": [
                {
                    "startOffset": {"orders": {"0": 1000 * number}},
                    "endOffset": {"orders": {"0": 1000 * (number + 1)}},
                    "latestOffset": {"orders": {"0": 1000 * (number + 1) + lag}},
                    "numInputRows": 1000,
                }
            ],
        }
        self._state.add(BatchFacts.of(progress))
        return NewEvent(QUERY, {**self._run, **vars(self._state)})


def test_jobs_are_shown_with_state_rates_lag_and_the_reason_of_a_failure(
    console: Console, console_server: KwireProcess
) -> None:
    console.open("/jobs")
    console.wait_for("No jobs yet")
    with Client(console_server.http_url) as client:
        client.rooms.create(ROOM, **RETENTION)
        client.stream.publish_many(
            ROOM,
            [
                job("1" * 32, "replay", 300, "running"),
                job("1" * 32, "replay", 300, DONE, ended_at=time_before(290), read_events=120_000, error=None),
                job("2" * 32, "lake", 90, "running"),
                job("2" * 32, "lake", 90, FAILED, ended_at=time_before(60), read_events=40_000, error=REASON),
                job("3" * 32, "lake", 45, "running"),
                job("4" * 32, "analytics", 20, "running", topics=[], pattern="game-.*"),
                NewEvent(ALIVE, {"run": "4" * 32, "job": "analytics"}),
                job("5" * 32, "lake", 30, "running"),
                Query("5" * 32, "lake", "orders").batch(0, 0),
                job("5" * 32, "lake", 30, DONE, ended_at=time_before(29), error=None),
                job("6" * 32, "lake", 10, "running"),
                job("6" * 32, "lake", 10, DONE, ended_at=time_before(9), read_events=6, error=None),
                job("7" * 32, "lake", 5, "running"),
                job("7" * 32, "lake", 5, DONE, ended_at=time_before(4), read_events=0, error=None),
            ],
        )
        orders, payments = Query("3" * 32, "lake", "orders"), Query("3" * 32, "lake", "payments")
        counts = Query("4" * 32, "analytics", "counts")
        # The server sets the time of a report; reports of one millisecond are one point of a chart.
        for number in range(12):
            events = [orders.batch(number, 600 - 50 * number), payments.batch(number, 0), counts.batch(number, 10)]
            client.stream.publish_many(ROOM, events)
        console.wait_for("game-.*")
        console.wait_for("failed")
        console.until("[...document.querySelectorAll('.figure-value')].map(one => one.innerText)[0] === '2'")
        console.screenshot("jobs")
        console.type("Filter Spark jobs", "payments running")
        console.until("document.querySelectorAll('tbody tr').length === 1")
        console.click("lake")
        console.wait_for("4711 on spark-1")
        console.until(f"{LINES} === 4")
        console.wait_for("24,000")
        console.screenshot("job")
        # New reports appear without a reload.
        client.stream.publish(ROOM, QUERY, orders.batch(12, 0).data)
        console.wait_for("25,000")
        client.stream.publish(ROOM, JOB, job("3" * 32, "lake", 45, "stopped", ended_at=time_before(0), error=None).data)
        console.wait_for("stopped")

    console.open(f"/jobs/{'2' * 32}")
    console.wait_for(REASON)
    console.screenshot("job-failed")
    # A job that has ended after one report has no line to draw.
    console.open(f"/jobs/{'5' * 32}")
    console.wait_for("1 batch")
    # A run that has ended has its mean rate, and none if it read nothing.
    console.wait_for("16.7/s")
    console.wait_for("mean of the run")
    console.open(f"/jobs/{'6' * 32}")
    console.wait_for("<1/s")
    console.open(f"/jobs/{'7' * 32}")
    console.wait_for("mean of the run")
    assert "/s" not in console.text()
    console.open("/jobs")
    console.wait_for("<1/s")
    rows = console.evaluate("[...document.querySelectorAll('tbody tr')].map(one => one.innerText)")
    assert not [row for row in rows if "done" in row and "\t0/s" in row]
    console.open(f"/jobs/{'5' * 32}")
    console.wait_for("1 batch")
    assert console.evaluate("[...document.querySelectorAll('.chart')].every(one => one.offsetParent === null)")
    console.open("/jobs/unknown")
    console.wait_for("There is no such run")
