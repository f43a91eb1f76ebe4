"""The job that keeps tables in shape: small files are put together, old days dropped, what nobody needs deleted.

It may run whenever it likes, beside the writer, and be killed at any moment: run it from time to time.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import DONE, told
from kwire.pipeline.lake.tables import FORMATS, TARGET_FILE_BYTES, open_lake
from kwire.pipeline.session import add_session_arguments, session_options, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.lake.tables import Table

HISTORY_HOURS = 5 * 24
ORPHAN_HOURS = 3 * 24
# Iceberg refuses less: a file of a batch on its way must never be taken for one that nobody wants.
ORPHAN_HOURS_MIN = 24
# A hundred years: calendars end somewhere.
DAYS_MAX = 36_500
FILE_MIB_MAX = 1024 * 1024
_MIB = 1024 * 1024


class Wanted(NamedTuple):
    """What is to be done; `retain_days` of None keeps rows for ever."""

    is_compacted: bool = True
    retain_days: int | None = None
    is_vacuumed: bool = True
    history: timedelta = timedelta(hours=HISTORY_HOURS)
    orphans: timedelta = timedelta(hours=ORPHAN_HOURS)


class Upkeep(Protocol):
    """Of one table. Each step tells in words what it did."""

    def compact(self) -> Iterator[str]: ...

    def retain(self, days: int) -> Iterator[str]: ...

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_arguments(parser)
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=f"of the tables (default: {FORMATS[0]})")
    parser.add_argument(
        "--topic", metavar="T", action="append", default=[], help="the table of this topic; repeatable (default: all)"
    )
    parser.add_argument("--no-compact", action="store_true", help="leave small files as they are")
    parser.add_argument(
        "--retain-days", metavar="N", type=_between(1, DAYS_MAX), help="drop days before the last N (default: keep all)"
    )
    parser.add_argument("--no-vacuum", action="store_true", help="keep old snapshots and files that belong to nothing")
    parser.add_argument(
        "--history-hours",
        metavar="N",
        type=_between(0, 24 * DAYS_MAX),
        default=HISTORY_HOURS,
        help=f"how long a table can be read as it was (default: {HISTORY_HOURS}); readers must be done by then",
    )
    parser.add_argument(
        "--orphan-hours",
        metavar="N",
        type=_between(ORPHAN_HOURS_MIN, 24 * DAYS_MAX),
        default=ORPHAN_HOURS,
        help=f"the age at which a file that belongs to nothing is deleted (default: {ORPHAN_HOURS})",
    )
    parser.add_argument(
        "--file-mib",
        metavar="N",
        type=_between(1, FILE_MIB_MAX),
        default=TARGET_FILE_BYTES // _MIB,
        help=f"how large a plain Parquet file should be (default: {TARGET_FILE_BYTES // _MIB})",
    )


def run(arguments: argparse.Namespace) -> int:
    wanted = Wanted(
        not arguments.no_compact,
        arguments.retain_days,
        not arguments.no_vacuum,
        timedelta(hours=arguments.history_hours),
        timedelta(hours=arguments.orphan_hours),
    )
    spark = spark_session(session_options(arguments, "kwire maintain"))
    lake = open_lake(spark, arguments.warehouse, arguments.format, arguments.file_mib * _MIB)
    tables = {name: lake.table(name) for name in [table_name(topic) for topic in arguments.topic] or lake.names()}
    if not tables:
        raise ValueError(f"there are no tables of the format {arguments.format} in {arguments.warehouse}")
    for table in tables.values():
        if not table.exists():
            raise ValueError(f"there is no table {table.name}")
    # One table in trouble is no reason to leave the others alone.
    in_trouble = [name for name, table in tables.items() if not _is_kept_up(spark, name, table, wanted)]
    if in_trouble:
        raise ValueError(
            f"{len(in_trouble)} of {len(tables)} tables could not be kept in shape: {', '.join(in_trouble)}"
        )
    return DONE


def _is_kept_up(spark: "SparkSession", name: str, table: "Table", wanted: Wanted) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    did_nothing = True
    try:
        for line in keep_up(upkeep_of(spark, table), wanted):
            did_nothing = False
            print(f"{name}: {line}", flush=True)
    except (Py4JError, PySparkException, OSError, ValueError) as error:
        print(f"{name}: {told(error)}", file=sys.stderr, flush=True)
        return False
    if did_nothing:
        print(f"{name}: nothing to do", flush=True)
    return True


def keep_up(upkeep: Upkeep, wanted: Wanted) -> Iterator[str]:
    """Old rows go first: what is dropped need not be compacted, and what both leave behind is deleted last."""
    if wanted.retain_days is not None:
        yield from upkeep.retain(wanted.retain_days)
    if wanted.is_compacted:
        yield from upkeep.compact()
    if wanted.is_vacuumed:
        yield from upkeep.vacuum(wanted.history, wanted.orphans)


def upkeep_of(spark: "SparkSession", table: "Table", now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Upkeep:
    from kwire.pipeline.lake.iceberg import IcebergTable
    from kwire.pipeline.lake.iceberg_upkeep import IcebergUpkeep
    from kwire.pipeline.lake.parquet import ParquetTable
    from kwire.pipeline.lake.parquet_upkeep import ParquetUpkeep

    if isinstance(table, IcebergTable):
        return IcebergUpkeep(spark, table, now)
    assert isinstance(table, ParquetTable)
    return ParquetUpkeep(spark, table, now)


def _between(minimum: int, maximum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{value} is not between {minimum} and {maximum}")
        return value

    number.__name__ = "whole number"
    return number
