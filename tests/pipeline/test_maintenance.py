"""Maintenance: fewer files, the same rows, marks that outlive their snapshots, and a writer that notices nothing."""

import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.columns import METADATA_COLUMNS, Column
from kwire.pipeline.jobs import CANNOT_RUN, DONE
from kwire.pipeline.lake.files import FileFacts, Files
from kwire.pipeline.lake.iceberg import QUERY_ID, IcebergTable
from kwire.pipeline.lake.iceberg_maintenance import IcebergMaintenance
from kwire.pipeline.lake.maintenance import MaintenanceOptions, maintain, maintenance_of
from kwire.pipeline.lake.parquet import ParquetTable
from kwire.pipeline.lake.parquet_maintenance import FILES_MIN, is_day_before, small_groups
from kwire.pipeline.lake.tables import FORMATS, BatchMark, Partitioning, Table, open_lake
from tests.support.jobs import run_job
from tests.support.server import kwire_command
from tests.support.spark import SHORT_LIVED_JOB, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

in_spark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# The clock that maintenance goes by: every snapshot of these tests is history, however late a run comes to them.
NOW = datetime.now(UTC) + timedelta(days=1)
FILE_BYTES = 1024 * 1024
BATCH_ROWS = 4
ALL_HISTORY_GONE = MaintenanceOptions(history=timedelta(0))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(1, 200))))
def test_only_small_files_of_one_directory_are_put_together(sizes: list[tuple[str, int]]) -> None:
    files = [FileFacts(f"{directory}/{number}".lstrip("/"), size) for number, (directory, size) in enumerate(sizes)]
    groups = list(small_groups(files, 100))
    for group in groups:
        assert len(group) >= FILES_MIN
        assert len({file.path.rpartition("/")[0] for file in group}) == 1
        assert all(file.size_bytes < 75 for file in group)
    taken = [file for group in groups for file in group]
    assert len(set(taken)) == len(taken)


def test_only_days_before_are_dropped() -> None:
    first_kept = date(2026, 5, 20)
    assert is_day_before("kafka_date=2026-05-19", first_kept)
    for kept in ("kafka_date=2026-05-20", "kafka_date=__HIVE_DEFAULT_PARTITION__", "by_city=2020-01-01", "_kwire"):
        assert not is_day_before(kept, first_kept)


class Filled:
    """A table of one text column that gets small batches."""

    def __init__(self, spark: "SparkSession", table_format: str, name: str) -> None:
        self.spark = spark
        self.format = table_format
        self.name = name
        self.table = self.opened()
        self.table.prepare((Column("value", "string"), *METADATA_COLUMNS), Partitioning())

    def opened(self) -> Table:
        """As another process finds it."""
        lake = open_lake(self.spark, warehouse_of(self.spark), self.format, FILE_BYTES)
        return lake.table(self.name)

    def append(self, batch_id: int, days_ago: int = 0) -> None:
        self.table.append(
            self.batch(batch_id, NOW.date() - timedelta(days=days_ago)),
            BatchMark("query", batch_id, {"offsets": str(batch_id)}),
        )

    def batch(self, batch_id: int, day: date) -> "DataFrame":
        start = batch_id * BATCH_ROWS
        return self.spark.range(start, start + BATCH_ROWS, 1, 1).selectExpr(
            "CONCAT('row-', id) AS value",
            "0 AS kafka_partition",
            "id AS kafka_offset",
            f"TIMESTAMP '{day} 12:00:00' AS kafka_timestamp",
        )

    def offsets(self) -> list[int]:
        return sorted(row[0] for row in self.opened().read().select("kafka_offset").collect())

    def maintain(self, wanted: MaintenanceOptions = ALL_HISTORY_GONE) -> list[str]:
        return list(maintain(maintenance_of(self.spark, self.opened(), lambda: NOW), wanted))

    def file_count(self) -> int:
        if isinstance(self.table, ParquetTable):
            return len(self.table.data_files())
        return len(self.spark.sql(f"SELECT file_path FROM {self.table.name}.files").collect())

    def directory(self) -> Path:
        return Path(warehouse_of(self.spark)) / "kwire" / self.name


def first(batches: int) -> list[int]:
    return list(range(batches * BATCH_ROWS))


class TestInSpark:
    pytestmark = in_spark

    @pytest.fixture(params=FORMATS)
    def filled(self, spark: "SparkSession", request: pytest.FixtureRequest) -> Filled:
        name = "".join(one if one.isalnum() else "_" for one in request.node.name)
        return Filled(spark, request.param, name)

    def test_small_files_become_large_ones_and_rows_stay(self, filled: Filled) -> None:
        batches = FILES_MIN + 1
        for batch_id in range(batches):
            filled.append(batch_id)
        assert filled.file_count() >= batches
        assert any(" into 1" in line for line in filled.maintain())
        assert filled.file_count() == 1
        assert filled.offsets() == first(batches)
        # What the table knows of its writer is still there: the last batch is not written twice, and the next one is.
        filled.table = filled.opened()
        assert filled.table.last_mark("query") == BatchMark("query", batches - 1, {"offsets": str(batches - 1)})
        filled.append(batches - 1)
        filled.append(batches)
        assert filled.offsets() == first(batches + 1)
        assert filled.opened().last_mark() == BatchMark("query", batches, {"offsets": str(batches)})

    def test_old_days_are_dropped_and_no_others(self, filled: Filled) -> None:
        for batch_id, days_ago in enumerate((20, 8, 7, 0)):
            filled.append(batch_id, days_ago)
        assert any(
            f"before {NOW.date() - timedelta(days=7)} dropped" in line
            for line in filled.maintain(MaintenanceOptions(retain_days=7))
        )
        assert filled.offsets() == list(range(2 * BATCH_ROWS, 4 * BATCH_ROWS))
        assert not any("dropped" in line for line in filled.maintain(MaintenanceOptions(retain_days=7)))

    def test_the_job_tells_what_it_did(
        self, spark: "SparkSession", filled: Filled, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for batch_id in range(FILES_MIN):
            filled.append(batch_id)
        words = ("maintain", "--warehouse", warehouse_of(spark), "--format", filled.format)
        assert run_job(*words, "--topic", filled.name) == DONE
        assert f"{filled.name}: {FILES_MIN} files compacted into 1" in capsys.readouterr().out
        assert run_job(*words, "--topic", filled.name) == DONE
        assert f"{filled.name}: nothing to do" in capsys.readouterr().out
        assert run_job(*words, "--topic", "nobody") == CANNOT_RUN
        assert "does not exist" in capsys.readouterr().err


class TestIceberg:
    pytestmark = in_spark

    def test_files_that_belong_to_nothing_go_when_they_are_old(self, spark: "SparkSession") -> None:
        filled = Filled(spark, "iceberg", "orphans")
        filled.append(0)
        data = filled.directory() / "data"
        old, young = data / "old.parquet", data / "young.parquet"
        for path in (old, young):
            path.write_bytes(b"left by a batch that was never committed")
        days_ago = (datetime.now(UTC) - timedelta(days=9)).timestamp()
        os.utime(old, (days_ago, days_ago))
        lines = list(maintain(maintenance_of(spark, filled.opened()), MaintenanceOptions()))
        assert "1 orphan files deleted" in lines
        assert (old.exists(), young.exists()) == (False, True)
        assert filled.offsets() == first(1)

    # It waits for a process: the tests that share Spark go on in another worker.
    @pytest.mark.xdist_group("spark-processes")
    @pytest.mark.full("two Java processes at work for half a minute; the parquet test beside it runs in every effort")
    @pytest.mark.timeout(600)
    def test_a_writer_goes_on_beside_it(self, spark: "SparkSession", tmp_path: Path) -> None:
        """As it is in life: maintenance is another process, and the writer appends until it has ended."""
        filled = Filled(spark, "iceberg", "beside")
        for batch_id in range(FILES_MIN):
            filled.append(batch_id)
        words = ["maintain", "--warehouse", warehouse_of(spark), "--topic", filled.name, "--history-hours", "0"]
        words += ["--retain-days", "1000", "--master", "local[1]", *SHORT_LIVED_JOB]
        batches = FILES_MIN
        with (
            (tmp_path / "maintain.log").open("w+") as log,
            subprocess.Popen([str(kwire_command()), "pipeline", *words], stdout=log, stderr=log) as process,
        ):
            while process.poll() is None:
                filled.append(batches)
                batches += 1
            log.seek(0)
            told = log.read()
        assert process.returncode == DONE, told
        assert " files compacted into 1" in told
        assert all(line.startswith(filled.name) for line in told.splitlines()[:-1]), told  # not a word of Spark
        assert re.fullmatch(r"1 table maintained, .*\d+ s", told.splitlines()[-1])
        assert filled.offsets() == first(batches)
        assert filled.opened().last_mark() == BatchMark("query", batches - 1, {"offsets": str(batches - 1)})

    def test_the_last_mark_is_the_last_one_however_many_queries_there_were(self, spark: "SparkSession") -> None:
        # A name that Spark takes for a secret's.
        filled = Filled(spark, "iceberg", "tokens")
        queries = ["b", "c", "a"]
        for number, query in enumerate(queries):
            mark = BatchMark(query, 9 - number, {"topic": "tokens", "offsets": str(number)})
            filled.table.append(filled.batch(number, NOW.date()), mark)
        for batch_id in range(3, 3 + FILES_MIN):
            filled.table.append(filled.batch(batch_id, NOW.date()), BatchMark("a", batch_id + 5, {"topic": "tokens"}))
        filled.maintain()
        snapshots = spark.sql(f"SELECT summary FROM {filled.table.name}.snapshots").collect()
        assert not any(QUERY_ID in row["summary"] for row in snapshots), "the test wants marks that have no snapshot"
        assert filled.opened().last_mark() == BatchMark("a", 12, {"topic": "tokens"})
        assert filled.opened().last_mark("b") == BatchMark("b", 9, {"topic": "tokens", "offsets": "0"})

    def test_many_files_are_compacted_in_turns(self, spark: "SparkSession") -> None:
        filled = Filled(spark, "iceberg", "turns")
        for batch_id in range(2 * FILES_MIN):
            filled.append(batch_id, days_ago=batch_id % 2)
        table = filled.opened()
        assert isinstance(table, IcebergTable)
        lines = list(IcebergMaintenance(spark, table, lambda: NOW, files_per_pass=FILES_MIN).compact())
        assert f"{2 * FILES_MIN} files compacted into 2" in lines
        assert filled.offsets() == first(2 * FILES_MIN)

    @pytest.mark.full("upserts compete with maintenance until it ends, which takes half a minute")
    def test_an_upsert_and_maintenance_give_way_to_each_other(self, spark: "SparkSession") -> None:
        from kwire.pipeline.lake.upsert import PARTITIONING, TABLE_PROPERTIES, upsert

        lake = open_lake(spark, warehouse_of(spark))
        table = lake.table("state")
        assert isinstance(table, IcebergTable)
        table.prepare((Column("value", "string"), *METADATA_COLUMNS), PARTITIONING, TABLE_PROPERTIES)

        def change(batch_id: int) -> None:
            rows = spark.range(0, BATCH_ROWS, 1, 1).selectExpr(
                f"STRUCT('v{batch_id}' AS value, 0 AS kafka_partition, {batch_id * BATCH_ROWS} + id AS kafka_offset, "
                "CAST(CAST(id AS STRING) AS BINARY) AS kafka_key) AS row",
                "FALSE AS is_tombstone",
            )
            upsert(table, rows, BatchMark("query", batch_id))

        for batch_id in range(4):
            change(batch_id)
        batches = 4
        with ThreadPoolExecutor() as pool:
            steps = maintain(maintenance_of(spark, lake.table("state")), MaintenanceOptions())
            upkeep = pool.submit(lambda: list(steps))
            while not upkeep.done():
                change(batches)
                batches += 1
        upkeep.result()
        lines = list(maintain(maintenance_of(spark, lake.table("state")), MaintenanceOptions(retain_days=1)))
        assert any("one row per key" in line for line in lines)
        found = table.read().selectExpr("CAST(kafka_key AS STRING)", "value").collect()
        assert sorted((row[0], row[1]) for row in found) == [(str(key), f"v{batches - 1}") for key in range(BATCH_ROWS)]


class TestParquet:
    pytestmark = in_spark

    def test_a_writer_goes_on_beside_it(self, spark: "SparkSession") -> None:
        filled = Filled(spark, "parquet", "beside_plain")
        for batch_id in range(FILES_MIN):
            filled.append(batch_id)
        batches = FILES_MIN
        with ThreadPoolExecutor() as pool:
            upkeep = pool.submit(lambda: [filled.maintain() for _ in range(3)])
            while not upkeep.done():
                filled.append(batches)
                batches += 1
        assert upkeep.result()
        assert filled.offsets() == first(batches)

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Have the process die at the next call of a method of Files; at none, with an empty name."""

        def at(name: str) -> None:
            def die(*given: Any) -> None:
                raise KeyboardInterrupt

            if name:
                monkeypatch.setattr(Files, name, die)
            else:
                monkeypatch.undo()

        return at

    @pytest.mark.parametrize("step", ["replace", "move"])
    def test_a_compaction_that_died_is_finished_by_the_next(
        self, spark: "SparkSession", broken: Callable[[str], None], step: str
    ) -> None:
        filled = Filled(spark, "parquet", f"died_at_{step}")
        for batch_id in range(FILES_MIN):
            filled.append(batch_id)
        broken(step)
        with pytest.raises(KeyboardInterrupt):
            filled.maintain()
        broken("")
        filled.maintain()
        assert filled.offsets() == first(FILES_MIN)
        assert filled.file_count() == 1
        hidden = {path.name for path in Path(unquote(urlsplit(filled.table.name).path)).rglob("compaction.json")}
        assert hidden == set()

    def test_a_day_that_was_dropped_does_not_come_back(
        self, spark: "SparkSession", broken: Callable[[str], None]
    ) -> None:
        filled = Filled(spark, "parquet", "dropped")
        for batch_id in range(FILES_MIN):
            filled.append(batch_id, days_ago=9)
        filled.append(FILES_MIN)
        broken("move")
        with pytest.raises(KeyboardInterrupt):
            filled.maintain()
        broken("")
        filled.maintain(MaintenanceOptions(retain_days=7))
        assert filled.offsets() == first(FILES_MIN + 1)[-BATCH_ROWS:]
