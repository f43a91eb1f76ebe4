"""Reads Spark's checkpoint of a streaming query: the query id and the end offsets of each micro-batch.

A checkpoint belongs to a table, and by default is stored in the same warehouse. If the checkpoint is lost, the job
continues from the end offsets in the table's last batch mark (see tables.py).
"""

import json
from typing import TYPE_CHECKING

from kwire.pipeline.lake.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Checkpoint:
    """The checkpoint directory of one streaming query."""

    def __init__(self, spark: "SparkSession", uri: str) -> None:
        self.uri = uri
        self._files = Files(spark, uri)

    def query_id(self) -> str:
        """Return the id of the query. Spark writes it before the first batch and never changes it."""
        return str(json.loads(self._files.read("metadata"))["id"])

    def last_done(self) -> int | None:
        """Return the id of the last batch that Spark has recorded as done, or None."""
        return max((int(name) for name in self._files.names("commits") if name.isdecimal()), default=None)

    def end_offsets(self, batch_id: int) -> str:
        """Return the end offsets of a batch, in the notation of `startingOffsets`.

        Spark writes them before it starts the batch.
        """
        version, _, offsets = self._files.read(f"offsets/{batch_id}").split("\n")[:3]
        if version != "v1":
            raise ValueError(f"{self.uri}: the offsets of batch {batch_id} must have the format v1, got {version}")
        return offsets

    def begun_offsets(self) -> str:
        """Return the start offsets of the first batch. Spark's Kafka source writes them before that batch."""
        # The file begins with a zero byte, for compatibility with Spark 2.1.
        version, _, offsets = self._files.read("sources/0/0").lstrip("\0").partition("\n")
        if version != "v1":
            raise ValueError(f"{self.uri}: the first offsets must have the format v1, got {version}")
        return offsets
