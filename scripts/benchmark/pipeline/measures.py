"""The rows of this family's table, with the targets (bars)."""

from collections.abc import Iterator

from benchmark.measures import Bar, Measure
from benchmark.pipeline import lake
from benchmark.pipeline.options import LAG, READ, Options

LEVEL = Bar(1.0, at_least=True)


def measures(given: Options) -> list[Measure]:
    return [*_reading(given), *_lake(given), *_lag(given)]


def _reading(given: Options) -> Iterator[Measure]:
    yield Measure(f"Spark reads {given.sizes.read_gb:g} GB of 1 KiB records", "MB/s", READ, "mb_per_s", LEVEL)
    yield Measure("- rows", "rows/s", READ, "rows_per_s", LEVEL)
    yield Measure("- server CPU", "s/GB", READ, "server_cpu_s_per_gb")
    yield Measure("- Spark", "cores", READ, "spark_cores", is_compared=False)
    yield Measure("- in page cache before", "share", READ, "resident_share_before", is_compared=False)


def _lake(given: Options) -> Iterator[Measure]:
    sizes = given.sizes
    for title, work in (
        (f"lake, {sizes.lake_rows:,} records as text", lake.named(lake.TEXT, lake.ICEBERG)),
        ("- the same as plain Parquet", lake.named(lake.TEXT, lake.PARQUET)),
        (f"lake, {sizes.event_rows:,} events with a schema", lake.named(lake.EVENTS, lake.ICEBERG)),
    ):
        yield Measure(title, "rows/s", work, "rows_per_s")
        yield Measure("- server CPU", "us/row", work, "cpu_us_per_request")
        yield Measure("- in files", "bytes/row", work, "table_bytes_per_row")


def _lag(given: Options) -> Iterator[Measure]:
    yield Measure(f"lake at {given.sizes.lag_rows_per_s:,} rows/s, behind by, p50", "ms", LAG, "p50_ms")
    yield Measure("- p99", "ms", LAG, "p99_ms")
    yield Measure("- longest", "ms", LAG, "max_ms")
    yield Measure("- commits", "", LAG, "commits")
    yield Measure("- server CPU", "us/row", LAG, "cpu_us_per_request")
