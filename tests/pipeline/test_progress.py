"""Running queries in real Spark: stopped between two batches, ended together when one fails, reported on the way."""

import argparse
import contextlib
import os
import signal
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kwire.client import Client
from kwire.pipeline import graceful_stop
from kwire.pipeline import query_runner as runner_module
from kwire.pipeline.query_runner import query_runner
from kwire.pipeline.server import Server
from tests.support.clients import produce_values, unique_name
from tests.support.server import KwireProcess, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WAIT_S = 60.0


def arguments(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"metrics": None, "quiet": True, "once": False, **changes})


class Numbers:
    """A query over numbers that never end, with a batch as often as it can, and what its writer did."""

    def __init__(self, spark: "SparkSession", name: str, directory: Path) -> None:
        self.checkpoint = directory / name
        rows = spark.readStream.format("rate").option("rowsPerSecond", "50").load()
        self.writer = rows.writeStream.queryName(name).option("checkpointLocation", str(self.checkpoint))
        self.begun: list[int] = []
        self.ended: list[int] = []

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        self.begun.append(batch_id)
        batch.count()
        self.ended.append(batch_id)

    def noted(self) -> list[int]:
        """The batches that Spark counts as done."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal())


def active_names(spark: "SparkSession") -> set[str]:
    return {query.name for query in spark.streams.active}


def run_to_the_end(
    spark: "SparkSession", *queries: "tuple[Numbers, Callable[[DataFrame, int], None]]", **changes: Any
) -> None:
    with query_runner(spark, arguments(**changes), "test") as run:
        for numbers, write in queries:
            run.start(numbers.writer, write)
        run.wait()


def test_a_signal_stops_after_the_batch_that_is_being_written(spark: "SparkSession", tmp_path: Path) -> None:
    numbers = Numbers(spark, "signalled", tmp_path)

    def write(batch: "DataFrame", batch_id: int) -> None:
        if batch_id == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        numbers.write(batch, batch_id)

    run_to_the_end(spark, (numbers, write))
    assert "signalled" not in active_names(spark)
    assert numbers.ended == numbers.begun == [0, 1, 2]
    assert numbers.noted() == [0, 1, 2]


def test_ctrl_c_stops_as_cleanly_and_is_told(spark: "SparkSession", tmp_path: Path) -> None:
    numbers = Numbers(spark, "interrupted", tmp_path)

    def write(batch: "DataFrame", batch_id: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        numbers.write(batch, batch_id)

    with pytest.raises(KeyboardInterrupt):
        run_to_the_end(spark, (numbers, write))
    assert numbers.noted() == numbers.ended == [0]


def test_when_one_query_fails_all_end_and_its_error_is_raised(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    healthy, failing = Numbers(spark, "healthy", tmp_path), Numbers(spark, "failing", tmp_path)
    has_begun = threading.Event()

    def write(batch: "DataFrame", batch_id: int) -> None:
        healthy.write(batch, batch_id)
        has_begun.set()

    def fail(batch: "DataFrame", batch_id: int) -> None:
        assert has_begun.wait(WAIT_S)
        raise ValueError("no such table")

    with pytest.raises(ValueError, match="no such table"):
        run_to_the_end(spark, (healthy, write), (failing, fail))
    assert not {"healthy", "failing"} & active_names(spark)
    assert healthy.noted() == healthy.ended == healthy.begun
    assert failing.noted() == []
    # The caller has the error; nobody else prints it, in no language.
    assert "no such table" not in capfd.readouterr().err


def test_batches_are_reported_while_they_happen(
    spark: "SparkSession", tmp_path: Path, unused_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = Numbers(spark, "reported", tmp_path)
    is_scraped = threading.Event()
    seen: list[str] = []

    def write(batch: "DataFrame", batch_id: int) -> None:
        numbers.write(batch, batch_id)
        if not is_scraped.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/metrics", timeout=WAIT_S) as answer:
                seen.append(answer.read().decode())
            if 'kwire_pipeline_batches_total{job="test",query="reported"}' in seen[-1]:
                is_scraped.set()
                os.kill(os.getpid(), signal.SIGTERM)

    run_to_the_end(spark, (numbers, write), metrics=f"127.0.0.1:{unused_port}", quiet=False)
    assert is_scraped.is_set()
    assert "test: batch " in capsys.readouterr().err


def test_a_signal_ends_the_job_also_when_the_server_is_gone(
    spark: "SparkSession",
    start_kwire: Callable[..., KwireProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Spark waits for a server much longer than anybody waits for a job to stop."""
    from pyspark.errors import PySparkException

    monkeypatch.setattr(runner_module, "STOP_S_MAX", 1)
    monkeypatch.setattr(graceful_stop, "COMMIT_RECORDED_AFTER_S", 1.0)
    server = start_kwire()
    produce_values(server.bootstrap, "seen", [b"first"])
    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": "seen", "startingOffsets": "earliest"}
    # So that it does not stay long behind this test.
    options |= {"kafka.default.api.timeout.ms": "6000", "kafka.request.timeout.ms": "3000"}
    written: list[int] = []

    def write(batch: "DataFrame", batch_id: int) -> None:
        written.append(batch.count())
        server.kill()

    def signal_when_it_asks_the_server() -> None:
        wait_until(lambda: bool(written) and "offsets" in query.status["message"], "the next batch", WAIT_S)
        os.kill(os.getpid(), signal.SIGTERM)

    with query_runner(spark, arguments(), "test") as run:
        rows = spark.readStream.format("kafka").options(**options).load()
        query = run.start(rows.writeStream.option("checkpointLocation", str(tmp_path / "gone")), write)
        signalling = threading.Thread(target=signal_when_it_asks_the_server)
        signalling.start()
        run.wait()
        signalling.join()
    assert written == [1]
    assert "Exception" not in capfd.readouterr().err
    with contextlib.suppress(PySparkException):
        assert query.awaitTermination(WAIT_S)


def test_a_job_reports_to_a_room_what_it_does(spark: "SparkSession", kwire: KwireProcess, tmp_path: Path) -> None:
    """A job that is done, and one that fails. Both read a topic of the server that gets the reports."""
    topic = unique_name("reported")
    produce_values(kwire.bootstrap, topic, [b"%d" % number for number in range(20)])
    options = {"kafka.bootstrap.servers": kwire.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def run(name: str, write: "Callable[[DataFrame, int], None]") -> None:
        given = arguments(
            server=Server(kwire.bootstrap, kwire.http_url),
            once=True,
            topic=[topic],
            warehouse="s3a://user:secret@lake/a",
        )
        with query_runner(spark, given, name) as runner:
            rows = spark.readStream.format("kafka").options(**options).load()
            writer = rows.writeStream.queryName(name).trigger(availableNow=True)
            runner.start(writer.option("checkpointLocation", str(tmp_path / name)), write)
            runner.wait()

    def fail(batch: "DataFrame", batch_id: int) -> None:
        raise ValueError("no such table")

    run(f"{topic}-good", lambda batch, _: print(batch.count()))
    with pytest.raises(ValueError, match="no such table"):
        run(f"{topic}-bad", fail)

    with Client(kwire.http_url) as client:
        info = client.rooms.get("kwire.jobs")
        assert info.facts["retention"]["mode"] == "hybrid"
        events = client.stream.history("kwire.jobs", from_offset=-50, limit=50).events
    good = [event for event in events if event.data["job"] == f"{topic}-good"]
    assert {event.data["run"] for event in good} == {good[0].data["run"]}
    first, last = good[0].data, good[-1].data
    assert (good[0].type, first["state"], first["topics"]) == ("job.report", "running", [topic])
    assert first["warehouse"] == "s3a://lake/a"
    assert (last["state"], last["error"], last["read_events"]) == ("done", None, 20)
    figures = [event.data for event in good if event.type == "query.report"][-1]
    assert (figures["query"], figures["read_events"], figures["lag_events"]) == (f"{topic}-good", 20, 0)
    assert figures["batches"] == 1
    bad = [event.data for event in events if event.data["job"] == f"{topic}-bad"][-1]
    assert (bad["state"], "no such table" in bad["error"]) == ("failed", True)


def test_a_server_that_takes_no_reports_does_not_fail_the_job(
    spark: "SparkSession", tmp_path: Path, unused_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = Numbers(spark, "unreported", tmp_path)

    def write(batch: "DataFrame", batch_id: int) -> None:
        numbers.write(batch, batch_id)
        os.kill(os.getpid(), signal.SIGTERM)

    run_to_the_end(
        spark, (numbers, write), quiet=False, server=Server("127.0.0.1:9", f"http://127.0.0.1:{unused_port}")
    )
    assert numbers.ended == [0]
    assert capsys.readouterr().err.count("the progress is not reported to the room kwire.jobs") == 1
