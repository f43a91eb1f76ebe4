"""The parts of progress that need no Spark: what a batch's report says, the console, the metrics, the signals."""

import argparse
import io
import os
import signal
import urllib.request
from datetime import UTC, datetime
from typing import Any

import pytest

from kwire.pipeline.arguments import count, seconds
from kwire.pipeline.batch_facts import BatchFacts
from kwire.pipeline.console import Console, status_text
from kwire.pipeline.graceful_stop import COMMIT_RECORDED_AFTER_S, BatchNotWritten, StoppableBatchWriter, StopRequest
from kwire.pipeline.jobs import error_text
from kwire.pipeline.metrics import Metrics, parsed_address, serving
from kwire.progress import ERASE_LINE

# As Spark 4.0 reports it, without what nobody here looks at.
REPORT: dict[str, Any] = {
    "id": "6f0c1c5e-5f0e-4f8e-9a39-0c2a4c3e7a11",
    "runId": "0d4e3a1c-24a8-4a0f-8a7c-6f1f1f8f9b55",
    "name": "orders",
    "timestamp": "2026-05-17T09:30:00.250Z",
    "batchId": 7,
    "numInputRows": 90,
    "inputRowsPerSecond": 45.5,
    "processedRowsPerSecond": 120.25,
    "durationMs": {"addBatch": 300, "triggerExecution": 412},
    "eventTime": {"watermark": "2026-05-17T09:29:00.000Z"},
    "stateOperators": [{"numRowsTotal": 12, "numRowsDroppedByWatermark": 3}, {"numRowsTotal": 4}],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[orders]]",
            "startOffset": {"orders": {"0": 100, "1": 40}},
            "endOffset": {"orders": {"0": 130, "1": 40, "2": 15}},
            "latestOffset": {"orders": {"0": 150, "1": 41, "2": 15}},
            "numInputRows": 90,
        }
    ],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def report(**changes: Any) -> BatchFacts:
    return BatchFacts.of({**REPORT, **changes})


def test_events_are_counted_by_offsets_and_new_partitions_from_their_start() -> None:
    facts = report()
    assert (facts.query, facts.batch_id, facts.duration_ms) == ("orders", 7, 412)
    assert facts.read_events == 30 + 0 + 15
    assert facts.lag_events == 20 + 1 + 0
    assert (facts.state_rows, facts.late_rows) == (16, 3)
    assert facts.watermark == datetime(2026, 5, 17, 9, 29, tzinfo=UTC)


def test_the_first_batch_has_no_start_and_a_repeated_one_no_latest() -> None:
    source = REPORT["sources"][0]
    first = report(sources=[{**source, "startOffset": None}], eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    assert (first.read_events, first.lag_events, first.watermark) == (90, 21, None)
    repeated = report(sources=[{**source, "latestOffset": None}], name=None)
    assert (repeated.query, repeated.read_events, repeated.lag_events) == ("query", 45, None)
    texts = {name: str(source[name]).replace("'", '"') for name in ("startOffset", "endOffset", "latestOffset")}
    assert report(sources=[{**source, **texts}]).lag_events == 21


@pytest.mark.parametrize("strange", [None, "", "rate", 7, {"a": 1}, {"a": {"0": None}}])
def test_offsets_of_other_sources_are_unknown(strange: Any) -> None:
    facts = report(sources=[{"startOffset": strange, "endOffset": strange, "latestOffset": strange, "numInputRows": 5}])
    assert (facts.read_events, facts.lag_events) == (5, None)


def test_a_line_sums_up_all_queries() -> None:
    assert status_text("lake", [report(), report(name="lobby", batchId=9, durationMs={"triggerExecution": 1000})]) == (
        "lake: batch 9  in 46/s  done 120/s  took 1.0 s  lag 42  watermark 09:29:00  late 6"
    )
    unknown = report(sources=[{"endOffset": None}], eventTime={}, stateOperators=[])
    assert status_text("lake", [unknown]).endswith("took 0.4 s  lag unknown")


def test_slow_rates_are_not_shown_as_nothing() -> None:
    slow = report(inputRowsPerSecond=0.2, processedRowsPerSecond=0.4)
    assert "in <1/s  done <1/s  took" in status_text("lake", [slow])
    idle = report(inputRowsPerSecond=0.0, processedRowsPerSecond=0.0, sources=[])
    assert "in 0/s  done 0/s  took" in status_text("lake", [idle])


def test_the_first_batch_has_no_input_rate() -> None:
    """Spark reports 0: it is the rate since the batch before."""
    first = report(inputRowsPerSecond=0.0, processedRowsPerSecond=6.0)
    assert first.input_rows_per_second is None
    assert status_text("lake", [first]).startswith("lake: batch 7  done 3/s  took")


def test_a_terminal_has_one_line_that_changes() -> None:
    clock, stream = Time(), Terminal()
    console = Console("lake", stream, is_bounded=False, is_shown=True, monotonic=clock)
    console.expect_query()
    console.expect_query()
    console.batch(report())
    console.batch(report(batchId=8))  # too soon to be seen
    clock.now_s += 1
    console.idle("lobby")  # the other one has something to do
    console.batch(report(batchId=9))
    clock.now_s += 1
    console.idle("orders")
    console.close()
    lines = stream.getvalue().split(ERASE_LINE)[1:]
    assert [line.split("  ")[0] for line in lines] == [
        "lake: batch 7",
        "lake: batch 9",
        "lake: waiting for events, 135 read\n",
    ]


def test_a_log_has_a_line_now_and_then() -> None:
    clock, stream = Time(), io.StringIO()
    console = Console("lake", stream, is_bounded=False, is_shown=True, monotonic=clock)
    for number in range(12):
        console.batch(report(batchId=number))
        clock.now_s += 1
    console.close()
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == ["lake: batch 0", "lake: batch 10"]


def test_a_bounded_job_has_a_bar_once_every_query_has_told_its_end() -> None:
    clock, stream = Time(), Terminal()
    console = Console("lake", stream, is_bounded=True, is_shown=True, monotonic=clock)
    console.expect_query()
    console.expect_query()
    console.batch(report())
    assert stream.getvalue() == ""
    console.batch(report(name="lobby"))
    clock.now_s += 1
    console.batch(report(sources=[{**REPORT["sources"][0], "startOffset": REPORT["sources"][0]["endOffset"]}]))
    console.close()
    assert "68%  90 of 132" in stream.getvalue()
    assert stream.getvalue().endswith(ERASE_LINE)


def test_a_query_that_has_nothing_to_do_does_not_keep_the_bar_back() -> None:
    for tell in (Console.idle, Console.ended):
        stream = Terminal()
        console = Console("lake", stream, is_bounded=True, is_shown=True)
        console.expect_query()
        console.expect_query()
        tell(console, "lobby")
        assert stream.getvalue() == ""
        console.batch(report())
        assert "68%  45 of 66" in stream.getvalue()


def test_a_quiet_job_says_nothing() -> None:
    for is_bounded in (False, True):
        stream = Terminal()
        console = Console("lake", stream, is_bounded=is_bounded, is_shown=False)
        console.expect_query()
        console.batch(report())
        console.idle("orders")
        console.close()
        assert stream.getvalue() == ""


def test_prometheus_reads_the_figures() -> None:
    metrics = Metrics("lake")
    metrics.batch(report())
    metrics.batch(report(sources=[{**REPORT["sources"][0], "latestOffset": None}]))

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"kwire_pipeline_{name}", {"job": "lake", "query": "orders"})

    assert value("batches_total") == 2
    assert value("events_total") == 90
    assert value("late_rows_total") == 6
    assert value("lag_events") == 21
    assert value("input_rows_per_second") == 22.75
    assert value("watermark_timestamp_seconds") == datetime(2026, 5, 17, 9, 29, tzinfo=UTC).timestamp()
    assert value("batch_duration_seconds_sum") == pytest.approx(0.824)
    metrics.idle("orders")
    assert (value("input_rows_per_second"), value("lag_events")) == (0, 0)


def test_metrics_are_served_on_the_port_that_was_asked_for(unused_port: int) -> None:
    metrics = Metrics("lake")
    metrics.batch(report())
    with (
        serving(metrics, f"127.0.0.1:{unused_port}"),
        urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/metrics", timeout=10) as answer,
    ):
        assert b'kwire_pipeline_lag_events{job="lake",query="orders"} 21.0' in answer.read()
    with serving(metrics, None):
        pass


def test_a_port_that_is_taken_is_named(unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    is_named = pytest.raises(OSError, match=f"--metrics {address}: .*in use")
    with serving(Metrics("lake"), address), is_named, serving(Metrics("lake"), address):
        pass


# Stands for a DataFrame that nobody looks into.
BATCH: Any = object()


def test_a_batch_is_written_whole_or_refused_and_at_rest_once_it_is_noted() -> None:
    clock, stop, written = Time(), StopRequest(), list[int]()
    at_rest: list[bool] = []

    def write(batch: Any, batch_id: int) -> None:
        at_rest.append(batches.is_idle)
        written.append(batch_id)

    batches = StoppableBatchWriter(write, stop, clock)
    batches(BATCH, 0)
    # After a batch Spark has yet to note it.
    for now_s in (clock.now_s, clock.now_s + COMMIT_RECORDED_AFTER_S + 1):
        clock.now_s = now_s
        at_rest.append(batches.is_idle)
    assert at_rest == [False, False, True]
    stop.request()
    with pytest.raises(BatchNotWritten, match="batch 1 is left for the next start"):
        batches(BATCH, 1)
    assert (written, batches.has_refused, batches.failure) == ([0], True, None)


def test_what_a_batch_failed_of_is_kept() -> None:
    reason = ValueError("no such table")

    def write(batch: Any, batch_id: int) -> None:
        raise reason

    batches = StoppableBatchWriter(write, StopRequest())
    with pytest.raises(BatchNotWritten, match="batch 4 was not written") as raised:
        batches(BATCH, 4)
    assert raised.value.__suppress_context__
    assert batches.failure is reason
    assert not batches.has_refused


def test_an_error_is_told_without_java() -> None:
    query = "\n=== Streaming Query ===\nIdentifier: counts [id = ad02, runId = 49ad]\nCurrent State: ACTIVE"
    assert error_text(ValueError(f"[STREAM_FAILED] it timed out{query}")) == "counts: [STREAM_FAILED] it timed out"
    assert error_text(ValueError("it is full\n\nJVM stacktrace:\norg.apache…\n\tat x")) == "it is full"
    assert (
        error_text(ValueError("An error occurred while calling o7.x.\n: java.io.IOException: gone\n\tat x"))
        == "java.io.IOException: gone"
    )
    assert error_text(ValueError()) == "ValueError"


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", "\u0663", "1000000001"])
def test_a_count_is_checked(wrong: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number"):
        count(wrong)


@pytest.mark.parametrize("wrong", ["-1", "x", "", "nan", "inf", "86401"])
def test_seconds_are_checked(wrong: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of seconds"):
        seconds(wrong)
    assert (seconds("0"), seconds("0.5"), count("12")) == (0.0, 0.5, 12)


def test_an_address_is_checked() -> None:
    assert parsed_address("127.0.0.1:9108") == ("127.0.0.1", 9108)
    assert parsed_address("[::1]:9108") == ("::1", 9108)
    for wrong in ("9108", ":9108", "host:", "host:x", "host:70000", "host:-1"):
        with pytest.raises(ValueError, match="--metrics: expected HOST:PORT"):
            parsed_address(wrong)


def test_the_first_signal_asks_and_the_second_is_as_before() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        stop = StopRequest()
        with stop.on_signals():
            assert not stop.is_requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert (stop.is_requested, stop.is_interrupt, seen) == (True, False, [])
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [signal.SIGTERM]
        either = StopRequest()
        with either.on_signals():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            assert (either.is_interrupt, seen) == (True, [signal.SIGTERM] * 2)
        interrupted = StopRequest()
        with interrupted.on_signals():
            os.kill(os.getpid(), signal.SIGINT)
            assert (interrupted.is_requested, interrupted.is_interrupt) == (True, True)
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(seen) == 3
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_rate_counts_from_the_start_of_the_queries_not_from_the_first_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    clock, stream = Time(), Terminal()
    console = Console("lake", stream, is_bounded=True, is_shown=True, monotonic=clock)
    console.expect_query()
    clock.now_s += 9  # Spark plans and reads the first batch
    console.batch(report())
    assert "68%  45 of 66  5/s  4 s left" in stream.getvalue()


def test_a_batch_that_was_evaluated_twice_has_the_rate_of_its_events() -> None:
    once = report(sources=[{**REPORT["sources"][0], "numInputRows": 45}])
    twice = report(sources=[{**REPORT["sources"][0], "numInputRows": 90}])
    assert once.read_events == twice.read_events == 45
    assert once.input_rows_per_second is not None
    assert twice.input_rows_per_second == once.input_rows_per_second / 2
    assert twice.processed_rows_per_second == once.processed_rows_per_second / 2


def test_events_that_all_queries_read_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    clock, stream = Time(), Terminal()
    console = Console("analytics", stream, is_bounded=True, is_shown=True, shares_source=True, monotonic=clock)
    for _ in range(2):
        console.expect_query()
    console.batch(report(name="counts"))
    assert console.read_events == 0  # the other query has read nothing yet
    console.batch(report(name="users"))
    assert console.read_events == 45
    assert "45 of 66" in stream.getvalue()
    slow = report(name="users", inputRowsPerSecond=2.0, processedRowsPerSecond=4.0)
    assert "in 1/s  done 2/s" in status_text("analytics", [report(), slow], shares_source=True)
