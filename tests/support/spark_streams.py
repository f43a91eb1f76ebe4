"""Reading and streaming by Spark's stock Kafka connector, as tests do it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_TIMEOUT_S = 60
# A consumer that reads records again waits for the fetch that it has sent ahead; the default is half a second.
PROMPT_FETCHES = {"kafka.fetch.max.wait.ms": "20"}


def source(spark: "SparkSession", bootstrap: str, **options: str) -> "DataFrame":
    """A batch: what the topics hold now, between two ends."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).options(**PROMPT_FETCHES)
    return reader.options(**options).load()


def values(frame: "DataFrame") -> list[bytes]:
    """The values in the order of partitions and offsets."""
    rows = frame.select("partition", "offset", "value").collect()
    return [bytes(value) for _, _, value in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


class Stream:
    """A streaming query from a topic into files, with its checkpoint: the files hold what it has delivered so far."""

    def __init__(self, spark: "SparkSession", bootstrap: str, directory: Path, **options: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.output = str(directory / "rows")
        self.checkpoint = str(directory / "checkpoint")
        self.options = options

    def start(self, **trigger: Any) -> Any:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer = (
            reader.options(**{**PROMPT_FETCHES, **self.options})
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", self.checkpoint)
        )
        return writer.trigger(**trigger).start(self.output) if trigger else writer.start(self.output)

    def run_once(self) -> list[dict[str, Any]]:
        """Deliver everything there is, then end; returns what each micro-batch reported."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(STREAM_TIMEOUT_S), "the query did not end"
            failure = query.exception()
            assert failure is None, str(failure)
            return [dict(progress) for progress in query.recentProgress]
        finally:
            query.stop()

    def rows(self) -> list[bytes]:
        return values(self.spark.read.parquet(self.output))
