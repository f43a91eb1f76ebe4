"""kwire pipeline maintain: compacts small files of tables, drops the rows of old days, and deletes unneeded files.

The job should run regularly. It can run while the writer runs, and can be killed at any time.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import DONE, error_text
from kwire.pipeline.lake.tables import FORMATS, TARGET_FILE_BYTES, open_lake
from kwire.pipeline.session import add_session_arguments, check_warehouse, session_options, spark_session
from kwire.progress import duration_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.lake.tables import Table

HISTORY_HOURS = 5 * 24
ORPHAN_HOURS = 3 * 24
# The minimum that Iceberg accepts. Files of a batch that is not committed yet look like orphans, and must be kept.
ORPHAN_HOURS_MIN = 24
# A hundred years. Larger values could lead to dates that Python does not support.
DAYS_MAX = 36_500
FILE_MIB_MAX = 1024 * 1024
_MIB = 1024 * 1024


class MaintenanceOptions(NamedTuple):
    """The selected steps of maintenance. If `retain_days` is None, no rows are dropped."""

    is_compacted: bool = True
    retain_days: int | None = None
    is_vacuumed: bool = True
    history: timedelta = timedelta(hours=HISTORY_HOURS)
    orphans: timedelta = timedelta(hours=ORPHAN_HOURS)


class TableMaintenance(Protocol):
    """Maintenance of one table. Each step yields messages that describe its changes."""

    def compact(self) -> Iterator[str]: ...

    def retain(self, days: int) -> Iterator[str]: ...

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_arguments(parser)
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help=f"format of the tables (default: {FORMATS[0]})"
    )
    parser.add_argument(
        "--topic",
        metavar="T",
        action="append",
        default=[],
        help="maintain the table of this topic; repeatable (default: all tables)",
    )
    parser.add_argument("--no-compact", action="store_true", help="do not compact small files")
    parser.add_argument(
        "--retain-days",
        metavar="N",
        type=_between(1, DAYS_MAX),
        help="drop rows older than the last N days (default: keep all)",
    )
    parser.add_argument("--no-vacuum", action="store_true", help="do not delete old snapshots and orphan files")
    parser.add_argument(
        "--history-hours",
        metavar="N",
        type=_between(0, 24 * DAYS_MAX),
        default=HISTORY_HOURS,
        help=f"how long old snapshots are kept (default: {HISTORY_HOURS}); no reader may take longer",
    )
    parser.add_argument(
        "--orphan-hours",
        metavar="N",
        type=_between(ORPHAN_HOURS_MIN, 24 * DAYS_MAX),
        default=ORPHAN_HOURS,
        help=f"age at which orphan files are deleted (default: {ORPHAN_HOURS})",
    )
    parser.add_argument(
        "--file-mib",
        metavar="N",
        type=_between(1, FILE_MIB_MAX),
        default=TARGET_FILE_BYTES // _MIB,
        help=f"target size of a plain Parquet file in MiB (default: {TARGET_FILE_BYTES // _MIB})",
    )


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    wanted = MaintenanceOptions(
        not arguments.no_compact,
        arguments.retain_days,
        not arguments.no_vacuum,
        timedelta(hours=arguments.history_hours),
        timedelta(hours=arguments.orphan_hours),
    )
    options = session_options(arguments, "kwire maintain")
    check_warehouse(options)
    spark = spark_session(options)
    lake = open_lake(spark, arguments.warehouse, arguments.format, arguments.file_mib * _MIB)
    tables = {name: lake.table(name) for name in [table_name(topic) for topic in arguments.topic] or lake.names()}
    if not tables:
        raise ValueError(f"{arguments.warehouse} has no tables of the format {arguments.format}")
    for table in tables.values():
        if not table.exists():
            raise ValueError(f"table {table.name} does not exist")
    # If the maintenance of one table fails, the other tables are still maintained.
    failed = [name for name, table in tables.items() if not _maintain_table(spark, name, table, wanted)]
    if not failed:
        count = f"{len(tables):,} table{'' if len(tables) == 1 else 's'}"
        print(f"{count} maintained, {duration_text(time.monotonic() - began)}", flush=True)
    else:
        raise ValueError(f"maintenance of {len(failed)} of {len(tables)} tables failed: {', '.join(failed)}")
    return DONE


def _maintain_table(spark: "SparkSession", name: str, table: "Table", wanted: MaintenanceOptions) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    did_nothing = True
    try:
        for line in maintain(maintenance_of(spark, table), wanted):
            did_nothing = False
            print(f"{name}: {line}", flush=True)
    except (Py4JError, PySparkException, OSError, ValueError) as error:
        print(f"{name}: {error_text(error)}", file=sys.stderr, flush=True)
        return False
    if did_nothing:
        print(f"{name}: nothing to do", flush=True)
    return True


def maintain(maintenance: TableMaintenance, wanted: MaintenanceOptions) -> Iterator[str]:
    """Run the selected steps, and yield their messages.

    The order avoids unnecessary work: drop rows, compact the remaining files, then delete files that are not used.
    """
    if wanted.retain_days is not None:
        yield from maintenance.retain(wanted.retain_days)
    if wanted.is_compacted:
        yield from maintenance.compact()
    if wanted.is_vacuumed:
        yield from maintenance.vacuum(wanted.history, wanted.orphans)


def maintenance_of(
    spark: "SparkSession", table: "Table", now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> TableMaintenance:
    from kwire.pipeline.lake.iceberg import IcebergTable
    from kwire.pipeline.lake.iceberg_maintenance import IcebergMaintenance
    from kwire.pipeline.lake.parquet import ParquetTable
    from kwire.pipeline.lake.parquet_maintenance import ParquetMaintenance

    if isinstance(table, IcebergTable):
        return IcebergMaintenance(spark, table, now)
    assert isinstance(table, ParquetTable)
    return ParquetMaintenance(spark, table, now)


def _between(minimum: int, maximum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"must be between {minimum} and {maximum}, got {value}")
        return value

    number.__name__ = "whole number"
    return number
