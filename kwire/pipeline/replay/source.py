"""Where the events come from: a table of the lake, or files. Either way a frame that Spark puts in order.

Events of one partition come in the order of their offsets, and partitions side by side as time went on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kwire.pipeline.ordered_rows import rows_in_order
from kwire.pipeline.replay.event import ReplayEvent

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Outlook(NamedTuple):
    """What is still to be sent, about: how many events, of how many bytes, and the time of the oldest."""

    events: int
    size_bytes: int
    oldest_ms: int | None


class Source(Protocol):
    """Offsets are by partition; a partition that is not named begins at its beginning."""

    def outlook(self, settled: Mapping[int, int]) -> Outlook:
        """Of all from these offsets on."""
        ...

    def after(self, settled: Mapping[int, int], outlook: Outlook) -> Iterator[ReplayEvent]:
        """All from these offsets on; few are held at a time."""
        ...

    def between(self, settled: Mapping[int, int], through: Mapping[int, int]) -> list[ReplayEvent]:
        """Those of a round: from the one offset up to the other, in the partitions of `through`."""
        ...


@dataclass(frozen=True)
class FrameSource:
    """`rows` has `kafka_partition`, `kafka_offset`, `kafka_timestamp`, `size_bytes`, and what `events` makes events of.

    `origin` is the id of the topic that they are from; nothing if nobody knows.
    """

    rows: "DataFrame"
    events: Callable[[Iterable[Any]], Iterator[ReplayEvent]]
    origin: str = ""

    def within(self, since: datetime | None, until: datetime | None) -> "FrameSource":
        """Only events of this time, `until` not included. What has no time is no event; see `_from`."""
        from pyspark.sql import functions as F

        rows, stamp = self.rows, F.col("kafka_timestamp")
        if since is not None:
            rows = rows.where(stamp.isNull() | (stamp >= F.lit(since)))
        if until is not None:
            rows = rows.where(stamp.isNull() | (stamp < F.lit(until)))
        return FrameSource(rows, self.events, self.origin)

    def outlook(self, settled: Mapping[int, int]) -> Outlook:
        from pyspark.sql import functions as F

        size = F.coalesce(F.sum("size_bytes"), F.lit(0))
        oldest_ms = F.unix_millis(F.min("kafka_timestamp"))
        return Outlook(*self.rows.where(_from(settled)).agg(F.count("*"), size, oldest_ms).collect()[0])

    def after(self, settled: Mapping[int, int], outlook: Outlook) -> Iterator[ReplayEvent]:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        so_far = Window.partitionBy("kafka_partition").orderBy("kafka_offset").rowsBetween(Window.unboundedPreceding, 0)
        # Never falls within a partition, so ordering by it cannot change a partition's own order.
        due = F.max("kafka_timestamp").over(so_far)
        rows = self.rows.where(_from(settled)).withColumn("due", due)
        by = ("due", "kafka_partition", "kafka_offset")
        return self.events(rows_in_order(rows, by, outlook.events, outlook.size_bytes))

    def between(self, settled: Mapping[int, int], through: Mapping[int, int]) -> list[ReplayEvent]:
        from pyspark.sql import functions as F

        parts = [
            (F.col("kafka_partition") == partition) & (F.col("kafka_offset") < end)
            for partition, end in through.items()
        ]
        rows = self.rows.where(_from(settled)).where(_any(parts)).orderBy("kafka_partition", "kafka_offset")
        return list(self.events(rows.toLocalIterator()))


def _from(settled: Mapping[int, int]) -> "Column":
    """What has no offset is no event: it is let through, for whoever makes events of rows to complain."""
    from pyspark.sql import functions as F

    behind = [
        (F.col("kafka_partition") == partition) & (F.col("kafka_offset") < offset)
        for partition, offset in settled.items()
    ]
    return ~F.coalesce(_any(behind), F.lit(False))


def _any(conditions: list["Column"]) -> "Column":
    from pyspark.sql import functions as F

    joined = F.lit(False)
    for one in conditions:
        joined = joined | one
    return joined
