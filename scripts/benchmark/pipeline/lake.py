"""kwire's lake job: the rate at which it writes a filled topic to a table, and the lag of a table during a load."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmark.events.topics import ORDER, make_event_topics, write_payloads
from benchmark.pipeline.options import LAG, LAKE
from benchmark.pipeline.stage import PARTITIONS, SETTINGS, START_SECONDS_MAX, PipelineWork, Stage, told
from benchmark.processes import ChildFailed, own_program
from benchmark.samples import Sample, observe
from benchmark.servers import KWIRE, LOOPBACK, RunningServer
from benchmark.works import BULK_PRODUCER, GRACE_SECONDS, Outcome

TEXT, EVENTS = f"{LAKE} text", f"{LAKE} events"
WARM_UP_SHARE = 0.1
SECONDS_PER_ROW_MAX = 0.001
ICEBERG, PARQUET = "iceberg", "parquet"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for work, rows in ((TEXT, sizes.lake_rows), (EVENTS, sizes.event_rows)):
        with stage.server(KWIRE, SETTINGS[KWIRE]) as server, stage.folder("lake") as directory:
            fill = _Fill(stage, server, directory, has_schema=work == EVENTS)
            fill.topic("rows", rows)
            for table_format in (ICEBERG, PARQUET) if work == TEXT else (ICEBERG,):
                # Each format has its own warm-up topic, because a job continues from the checkpoint of its topic.
                warm_up = fill.topic(f"warm-up-{table_format}", max(1, int(rows * WARM_UP_SHARE)))
                write = partial(_write, server, directory / table_format, table_format, warm_up, rows)
                yield observe(server, round_number, named(work, table_format), write)


def named(work: str, table_format: str) -> str:
    return work if table_format == ICEBERG else f"{work}, {table_format}"


class _Fill:
    """Creates and fills topics with JSON: plain topics with several partitions, or event topics with a schema."""

    def __init__(self, stage: Stage, server: RunningServer, directory: Path, *, has_schema: bool) -> None:
        self._stage = stage
        self._server = server
        self._payloads = write_payloads(directory / "payloads")
        self._has_schema = has_schema

    def topic(self, name: str, records: int) -> str:
        if self._has_schema:
            make_event_topics(self._server, [name], ORDER)
        else:
            self._stage.tools.create_topic(self._server, name, PARTITIONS)
        self._stage.tools.produce(self._server, name, records, self._payloads, BULK_PRODUCER)
        return name


def _write(server: RunningServer, warehouse: Path, table_format: str, warm_up: str, rows: int) -> Outcome:
    figures = told(
        "lake_program",
        rows * SECONDS_PER_ROW_MAX,
        **_server(server),
        topic="rows",
        warm_up=warm_up,
        warehouse=warehouse,
        format=table_format,
    )
    if figures["rows"] != rows:
        raise ChildFailed(f"the table has {figures['rows']:.0f} of {rows} rows")
    size = sum(path.stat().st_size for path in warehouse.rglob("*.parquet"))
    return Outcome({**figures, "table_bytes_per_row": size / rows}, requests=rows)


def _server(server: RunningServer) -> dict[str, object]:
    return {"bootstrap": server.bootstrap, "http": f"http://{LOOPBACK}:{server.http_port}"}


def run_lag(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    with stage.server(KWIRE, SETTINGS[KWIRE]) as server, stage.folder("lag") as directory:
        for topic in ("rows", "warm-up"):
            stage.tools.create_topic(server, topic, PARTITIONS)
        stage.tools.produce(server, "warm-up", 1000, write_payloads(directory / "payloads"), BULK_PRODUCER)
        yield observe(server, round_number, LAG, partial(_watch, server, directory / "lake", sizes.lag_seconds, stage))


def _watch(server: RunningServer, warehouse: Path, seconds: float, stage: Stage) -> Outcome:
    rate = stage.options.sizes.lag_rows_per_s
    feeding = own_program("pipeline.feed_program", bootstrap=server.bootstrap, topic="rows", rate=rate)
    with feeding as feeder:
        figures = told(
            "lake_program",
            seconds,
            **_server(server),
            topic="rows",
            warm_up="warm-up",
            warehouse=warehouse,
            format=ICEBERG,
            seconds=seconds,
        )
        feeder.finish(GRACE_SECONDS)
    return Outcome(figures, requests=figures["all_rows"])


WORK = PipelineWork(LAKE, 300, run, servers=(KWIRE,))
LAG_WORK = PipelineWork(LAG, START_SECONDS_MAX / 4, run_lag, servers=(KWIRE,))
