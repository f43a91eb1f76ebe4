"""Results leave: as events of a room, and as rows of a table. Both take a repeated micro-batch without a trace.

A table knows the micro-batches it holds. A room does not, but the id of a result's event follows from the query and
what the result is about, and only the first batch after a start can be a repetition: before telling that one, what the
room already holds is looked up. So a result is told once, whenever the job was killed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql import functions as F

from kwire.client import Client
from kwire.pipeline.analytics.results import Result
from kwire.pipeline.columns import TableNameClash
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.tables import BatchMark, Partitioning, Table
from kwire.pipeline.source import header_text
from kwire.pipeline.stopping import WriteBatch
from kwire.pipeline.topic_facts import TopicFactsReader, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE = "/kwire/pipeline/analytics"
EVENT_ID_HEX_DIGITS = 32
# Notes in the marks of a table: whose results it has.
ROOM_NOTE, RESULT_NOTE = "results-room", "result"
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


class Place(Protocol):
    """Where results go."""

    def take(self, rows: "DataFrame", mark: BatchMark) -> None: ...


class RoomPlace:
    """The room that results are told in, as events of the type `activity.<result>`."""

    def __init__(self, result: Result, query: str, room: "ResultsRoom") -> None:
        self._result = result
        self._query = query
        self._room = room
        self._options = {"kafka.bootstrap.servers": room.bootstrap}
        self._is_first = True

    def take(self, rows: "DataFrame", mark: BatchMark) -> None:
        self._room.make()
        told = _records(rows, self._result, self._query)
        if self._is_first:
            told = told.join(self._ids(rows), "event_id", "left_anti")
        # One task, so that they come in the order of their windows.
        told = told.coalesce(1).sortWithinPartitions("time", "value").select("key", "value", "headers")
        told.write.format("kafka").options(**self._options, topic=self._room.name, includeHeaders="true").save()
        self._is_first = False

    def _ids(self, rows: "DataFrame") -> "DataFrame":
        reader = rows.sparkSession.read.format("kafka").options(**self._options)
        events = reader.options(subscribe=self._room.name, includeHeaders="true", failOnDataLoss="false").load()
        return events.select(header_text("ce_id").alias("event_id")).where("event_id IS NOT NULL").distinct()


class TablePlace:
    """The table of a result; it is made with the first rows."""

    def __init__(self, result: Result, table: Table, room: str) -> None:
        self._result = result
        self._table = table
        self._notes = {ROOM_NOTE: room, RESULT_NOTE: result.name}
        self._is_prepared = False
        last = table.last_mark()
        if last is not None and {name: last.notes.get(name) for name in self._notes} != self._notes:
            raise TableNameClash(f"{table.name} is no table of {result.event_type} of the room {room}, but of others")

    def take(self, rows: "DataFrame", mark: BatchMark) -> None:
        if not self._is_prepared:
            self._table.prepare(self._result.columns, Partitioning(date_column=self._result.time))
            self._is_prepared = True
        self._table.append(rows, BatchMark(mark.query_id, mark.batch_id, self._notes))


class ResultsRoom(NamedTuple):
    """Where the server has it: rooms are made over HTTP, and told in over the Kafka port."""

    name: str
    bootstrap: str
    http: str

    def make(self) -> None:
        """If it is not there (any more): a room that nobody used for long goes, and a producer would make a topic."""
        try:
            TopicFactsReader(self.http, self.bootstrap).topic(self.name)
        except TopicMissing:
            with Client(self.http) as client:
                client.rooms.create(self.name)


def teller(places: Sequence[Place], checkpoint: Checkpoint) -> WriteBatch:
    """What a query does with each micro-batch: hand it to all places."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        rows = batch.persist()
        try:
            # Counted, though most batches close no window, and whatever the places do: only a partition that was
            # worked out has its open windows kept for the next batch.
            if rows.count():
                for place in places:
                    place.take(rows, BatchMark(checkpoint.query_id(), batch_id))
        finally:
            rows.unpersist()

    return write


def _records(rows: "DataFrame", result: Result, query: str) -> "DataFrame":
    """(event_id, time, key, value, headers): results as the server stores events, CloudEvents in binary mode."""
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
