"""The sinks of results: a room, to which results are published as events, and a table, to which they are appended.

Both write each result once, even if the job is killed and Spark repeats a micro-batch. A table stores the marks of the
micro-batches that it holds. In a room, the event id of a result is derived from its query and its identity columns.
Only the first batch after a start can be a repetition. So before this batch is published, all event ids in the room are
read, and results whose id exists are omitted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql import functions as F

from kwire.client import RoomNotFound
from kwire.pipeline.analytics.results import Result
from kwire.pipeline.columns import TableNameClash
from kwire.pipeline.graceful_stop import WriteBatch
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.tables import BatchMark, Partitioning, Table
from kwire.pipeline.server import Server
from kwire.pipeline.source import header_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE = "/kwire/pipeline/analytics"
EVENT_ID_HEX_DIGITS = 32
# Each batch mark of a table has two notes: `results-room` holds the name of the room, `result` the name of the result.
ROOM_NOTE, RESULT_NOTE = "results-room", "result"
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


class ResultSink(Protocol):
    """A destination of results."""

    def write(self, rows: "DataFrame", mark: BatchMark) -> None: ...


class RoomSink:
    """Publishes results to a room, as events of the type `activity.<result>`."""

    def __init__(self, result: Result, query: str, room: "ResultsRoom") -> None:
        self._result = result
        self._query = query
        self._room = room
        self._options = room.server.spark_options()
        self._is_first = True

    def write(self, rows: "DataFrame", mark: BatchMark) -> None:
        self._room.create_if_missing()
        records = _records(rows, self._result, self._query)
        if self._is_first:
            records = records.join(self._published_ids(rows), "event_id", "left_anti")
        # One task writes all results, so that they are in the order of their windows.
        records = records.coalesce(1).sortWithinPartitions("time", "value").select("key", "value", "headers")
        records.write.format("kafka").options(**self._options, topic=self._room.name, includeHeaders="true").save()
        self._is_first = False

    def _published_ids(self, rows: "DataFrame") -> "DataFrame":
        reader = rows.sparkSession.read.format("kafka").options(**self._options)
        events = reader.options(subscribe=self._room.name, includeHeaders="true", failOnDataLoss="false").load()
        return events.select(header_text("ce_id").alias("event_id")).where("event_id IS NOT NULL").distinct()


class TableSink:
    """Appends rows to the table of a kind of result. The table is created before the first rows are written."""

    def __init__(self, result: Result, table: Table, room: str) -> None:
        self._result = result
        self._table = table
        self._notes = {ROOM_NOTE: room, RESULT_NOTE: result.name}
        self._is_prepared = False
        last = table.last_mark()
        if last is not None and {name: last.notes.get(name) for name in self._notes} != self._notes:
            raise TableNameClash(
                f"{table.name} is not the table of {result.event_type} of the room {room}, but holds other results"
            )

    def write(self, rows: "DataFrame", mark: BatchMark) -> None:
        if not self._is_prepared:
            self._table.prepare(self._result.columns, Partitioning(date_column=self._result.time))
            self._is_prepared = True
        self._table.append(rows, BatchMark(mark.query_id, mark.batch_id, self._notes))


class ResultsRoom(NamedTuple):
    """The room for results. It is created over the HTTP port and written to over the Kafka port."""

    name: str
    server: Server

    def create_if_missing(self) -> None:
        """Create the room if it does not exist.

        The server deletes unused rooms, so the room may have been deleted. If a producer wrote to the missing room,
        the server would create an ordinary topic with this name.
        """
        with self.server.client() as client:
            try:
                client.rooms.get(self.name)
            except RoomNotFound:
                client.rooms.create(self.name)


def batch_writer(sinks: Sequence[ResultSink], checkpoint: Checkpoint) -> WriteBatch:
    """Return a function that writes each micro-batch of a query to all sinks."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        rows = batch.persist()
        try:
            # The rows are counted even if there are no results. The count evaluates all partitions, and Spark saves the
            # open windows of a partition for the next batch only if the partition is evaluated.
            if rows.count():
                for sink in sinks:
                    sink.write(rows, BatchMark(checkpoint.query_id(), batch_id))
        finally:
            rows.unpersist()

    return write


def _records(rows: "DataFrame", result: Result, query: str) -> "DataFrame":
    """Convert results to records (event_id, time, key, value, headers).

    The records are CloudEvents in binary mode, as the server writes events of rooms.
    """
    identity = F.to_json(F.struct(F.lit(query), *result.identity))
    event_id = F.substring(F.sha2(identity, 256), 1, EVENT_ID_HEX_DIGITS)
    value = F.to_json(F.struct(*(column.name for column in result.columns)))
    key = F.col("room") if "room" in rows.columns else F.lit(None).cast("string")
    named = rows.select(
        event_id.alias("event_id"), F.col(result.time).alias("time"), key.alias("key"), value.alias("value")
    )
    headers = [
        _header("ce_specversion", F.lit("1.0")),
        _header("content-type", F.lit("application/json")),
        _header("ce_source", F.lit(SOURCE)),
        _header("ce_type", F.lit(result.event_type)),
        _header("ce_time", F.date_format(F.current_timestamp(), TIME_FORMAT)),
        _header("ce_id", F.col("event_id")),
    ]
    return named.withColumn("headers", F.array(*headers))


def _header(name: str, value: "Column") -> "Column":
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
