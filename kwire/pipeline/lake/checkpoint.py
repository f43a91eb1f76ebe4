"""What Spark notes of a streaming query: its id, and where each micro-batch ends.

A checkpoint belongs to a table and stands in the warehouse beside it. Should it get lost, the table itself knows how
far it has come: the end of each batch is in its mark.
"""

import json
from typing import TYPE_CHECKING

from kwire.pipeline.lake.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Checkpoint:
    def __init__(self, spark: "SparkSession", uri: str) -> None:
        self.uri = uri
        self._files = Files(spark, uri)

    def query_id(self) -> str:
        """The same for as long as the checkpoint lives; Spark writes it before the first batch."""
        return str(json.loads(self._files.read("metadata"))["id"])

    def last_done(self) -> int | None:
        """The last batch that Spark has noted as done."""
        return max((int(name) for name in self._files.names("commits") if name.isdecimal()), default=None)

    def end_offsets(self, batch_id: int) -> str:
        """Where a batch ends, as `startingOffsets` takes it; Spark writes it before it begins the batch."""
        version, _, offsets = self._files.read(f"offsets/{batch_id}").split("\n")[:3]
        if version != "v1":
            raise ValueError(f"{self.uri}: the offsets of batch {batch_id} have the format {version}, not v1")
        return offsets

    def begun_offsets(self) -> str:
        """Where the first batch began; Spark's Kafka source writes it before that."""
        # A zero byte comes first, for the sake of Spark 2.1.
        version, _, offsets = self._files.read("sources/0/0").lstrip("\0").partition("\n")
        if version != "v1":
            raise ValueError(f"{self.uri}: the offsets at which it began have the format {version}, not v1")
        return offsets
