"""The source of a replay: a DataFrame of a lake table or of event files, sorted by Spark.

Events of one partition are in the order of their offsets. The partitions are merged in the order of timestamps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kwire.pipeline.ordered_rows import rows_in_order
from kwire.pipeline.replay.event import ReplayEvent

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Backlog(NamedTuple):
    """An estimate of the events that are not sent yet: their number, their bytes, and the oldest timestamp."""

    events: int
    size_bytes: int
    oldest_ms: int | None


class Source(Protocol):
    """A source of events. `settled` has the start offsets by partition. Other partitions start at their first event."""

    def backlog(self, settled: Mapping[int, int]) -> Backlog:
        """Return the backlog from these offsets on."""
        ...

    def after(self, settled: Mapping[int, int], backlog: Backlog) -> Iterator[ReplayEvent]:
        """Yield all events from these offsets on. Only a small part of them is in memory at a time."""
        ...

    def between(self, settled: Mapping[int, int], through: Mapping[int, int]) -> list[ReplayEvent]:
        """Return the events from `settled` to `through` (exclusive), in the partitions of `through`."""
        ...


@dataclass(frozen=True)
class FrameSource:
    """A source that reads the rows of a DataFrame, and converts them to events with `events`.

    The DataFrame has the columns `kafka_partition`, `kafka_offset`, `kafka_timestamp`, `size_bytes`, and those that
    `events` uses. `origin` is the id of the source topic, or "" if it is unknown.
    """

    rows: "DataFrame"
    events: Callable[[Iterable[Any]], Iterator[ReplayEvent]]
    origin: str = ""

    def within(self, since: datetime | None, until: datetime | None) -> "FrameSource":
        """Return a source with only the events of this time range, `until` exclusive.

        Rows without a timestamp are kept, so that the conversion to events reports them.
        """
        from pyspark.sql import functions as F

        rows, stamp = self.rows, F.col("kafka_timestamp")
        if since is not None:
            rows = rows.where(stamp.isNull() | (stamp >= F.lit(since)))
        if until is not None:
            rows = rows.where(stamp.isNull() | (stamp < F.lit(until)))
        return FrameSource(rows, self.events, self.origin)

    def backlog(self, settled: Mapping[int, int]) -> Backlog:
        from pyspark.sql import functions as F

        size = F.coalesce(F.sum("size_bytes"), F.lit(0))
        oldest_ms = F.unix_millis(F.min("kafka_timestamp"))
        return Backlog(*self.rows.where(_from(settled)).agg(F.count("*"), size, oldest_ms).collect()[0])

    def after(self, settled: Mapping[int, int], backlog: Backlog) -> Iterator[ReplayEvent]:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        so_far = Window.partitionBy("kafka_partition").orderBy("kafka_offset").rowsBetween(Window.unboundedPreceding, 0)
        # The maximum of all timestamps so far never decreases within a partition. So sorting by this maximum, and then
        # by offset, keeps the order of each partition.
        due = F.max("kafka_timestamp").over(so_far)
        rows = self.rows.where(_from(settled)).withColumn("due", due)
        by = ("due", "kafka_partition", "kafka_offset")
        return self.events(rows_in_order(rows, by, backlog.events, backlog.size_bytes))

    def between(self, settled: Mapping[int, int], through: Mapping[int, int]) -> list[ReplayEvent]:
        from pyspark.sql import functions as F

        parts = [
            (F.col("kafka_partition") == partition) & (F.col("kafka_offset") < end)
            for partition, end in through.items()
        ]
        rows = self.rows.where(_from(settled)).where(_any(parts)).orderBy("kafka_partition", "kafka_offset")
        return list(self.events(rows.toLocalIterator()))


def _from(settled: Mapping[int, int]) -> "Column":
    """Return the condition for rows from these offsets on.

    Rows without an offset are kept, so that the conversion to events reports them.
    """
    from pyspark.sql import functions as F

    settled_rows = [
        (F.col("kafka_partition") == partition) & (F.col("kafka_offset") < offset)
        for partition, offset in settled.items()
    ]
    return ~F.coalesce(_any(settled_rows), F.lit(False))


def _any(conditions: list["Column"]) -> "Column":
    from pyspark.sql import functions as F

    joined = F.lit(False)
    for one in conditions:
        joined = joined | one
    return joined
