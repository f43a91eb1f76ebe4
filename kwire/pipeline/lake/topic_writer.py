"""Writes the micro-batches of one topic to its table, each micro-batch once.

Schemas are requested after Spark has determined the end offsets of a batch. So the schemas are at least as new as every
event of the batch, and the columns of an event are added to the table before the event is written.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.pipeline.changes import TopicChanged, TopicChangeDetector, next_offsets
from kwire.pipeline.columns import TableNameClash, table_columns
from kwire.pipeline.lake import dead_letters, upsert
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.iceberg import IcebergTable
from kwire.pipeline.lake.tables import BatchMark, Lake, Partitioning, Table
from kwire.pipeline.server import Server
from kwire.pipeline.session import NAMESPACE
from kwire.pipeline.source import EARLIEST, PROBLEM, ROW, TOMBSTONE, RowShape, parsed, row_shape
from kwire.pipeline.topic_facts import APPEND, UPSERT, ServerUnreachable, TopicFacts, TopicFactsReader, TopicMissing
from kwire.progress import duration_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The names of the notes in the batch marks of a table.
TOPIC_NOTE, TOPIC_ID_NOTE, MODE_NOTE, OFFSETS_NOTE = "topic", "topic-id", "mode", "offsets"
# The note with records that were lost before they were read: a list of [partition, first offset, end offset].
LOST_NOTE = "lost"


class TableBehind(ValueError):
    """The table does not hold a batch that the checkpoint has recorded as done."""


class CheckpointBehind(ValueError):
    """The checkpoint is older than the table, so its next batches would have numbers that the table already has."""


class ModeChanged(ValueError):
    """The lake mode of the topic changed. An append table cannot become an upsert table, nor the reverse."""


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The options of the lake job that its writers use."""

    server: Server
    partitioning: Partitioning
    # One of dead_letters.CHOICES, and the topic for dead letters (None for a name derived from the source topic).
    bad_rows: str = dead_letters.TO_TABLE
    dead_letter_topic: str | None = None
    # If records were deleted before they were read: True stops the job, False skips them and stores a note.
    stops_at_loss: bool = True


class TopicWriter:
    """Writes one topic to its table. Spark calls the object with each micro-batch."""

    def __init__(
        self,
        topic: str,
        table_name: str,
        lake: Lake,
        reader: TopicFactsReader,
        checkpoint: Checkpoint,
        options: LakeOptions,
    ) -> None:
        self.topic = topic
        self.table = lake.table(table_name)
        self._table_name = table_name
        self._dead_letters = dead_letters.dead_letter_table(lake, table_name)
        self._reader = reader
        self._checkpoint = checkpoint
        self._options = options
        last = self._last_mark(self.table)
        if options.bad_rows == dead_letters.TO_TABLE:
            self._last_mark(self._dead_letters)
        self._changes = TopicChangeDetector(
            reader,
            topic,
            last.notes[TOPIC_ID_NOTE] if last else None,
            last.notes[OFFSETS_NOTE] if last else None,
            stops_at_loss=options.stops_at_loss,
        )
        self._mode = last.notes[MODE_NOTE] if last else None
        self._prepared: tuple[TopicFacts, RowShape] | None = None
        # The original exception of a failed batch. Spark raises another exception in its place.
        self.failure: Exception | None = None
        # The rows that this run has added to the table or merged into it, and the bad records.
        self.written_rows = 0
        self.bad_records = 0

    def _last_mark(self, table: Table) -> BatchMark | None:
        """Return the last mark of a table. Raises TableNameClash if the table belongs to another topic."""
        last = table.last_mark()
        if last is not None and last.notes.get(TOPIC_NOTE) != self.topic:
            owner = last.notes.get(TOPIC_NOTE) or "another job"
            raise TableNameClash(f"{table.name} is the table of {owner}, not of topic {self.topic}")
        return last

    def starting_offsets(self) -> str:
        """Check the topic and the checkpoint, and return the start offsets of a query without a checkpoint."""
        self._changes.check()
        self._check_checkpoint()
        return EARLIEST if self.table.last_mark() is None else self._changes.starting_offsets()

    def prepare(self) -> None:
        """Create the table, or add missing columns. Called at the start, so that the table exists without events."""
        self._shape(self._reader.topic(self.topic))

    def _check_checkpoint(self) -> None:
        """Check that the table holds the last batch that Spark has recorded as done.

        Without this check, the query would continue after that batch, and the table would lack the batch's records.
        """
        done = self._checkpoint.last_done()
        if done is not None and not self.table.holds(BatchMark(self._checkpoint.query_id(), done)):
            raise TableBehind(
                f"{self.table.name} does not hold batch {done}, which {self._checkpoint.uri} has recorded as done: the "
                "table was dropped or rolled back, or has another format. Delete this checkpoint to continue at the "
                "end of the table"
            )

    def summary(self, seconds: float) -> str:
        """Return what this run has done: `kwire.orders: 3,000 rows added, 3,001 in all, 24 s`."""
        noun, verb = ("key", "merged") if self._mode == UPSERT else ("row", "added")
        parts = [f"{self.written_rows:,} {noun}{'' if self.written_rows == 1 else 's'} {verb}"]
        if self.bad_records:
            parts.append(f"{self.bad_records:,} bad records")
        parts += [f"{self.table.read().count():,} in all", duration_text(seconds)]
        return f"{NAMESPACE}.{self._table_name}: {', '.join(parts)}"

    def failure_cause(self) -> Exception | None:
        """Return the reason why the query failed: a change of the topic, or the exception of a batch."""
        try:
            self._changes.check()
        except (TopicChanged, TopicMissing) as change:
            return change
        except ServerUnreachable as error:
            return self.failure or error
        return self.failure

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        try:
            self._write(batch, batch_id)
        except Exception as error:
            self.failure = dead_letters.bad_record_in(error) or error
            raise

    def _write(self, batch: "DataFrame", batch_id: int) -> None:
        offsets = self._checkpoint.end_offsets(batch_id)
        # The topic is checked before the table is changed, so that columns of a recreated topic are not added to it.
        lost = self._changes.check_batch(self._checkpoint.begun_offsets(), offsets)
        shape = self._shape(self._reader.topic(self.topic))
        notes = {
            TOPIC_NOTE: self.topic,
            TOPIC_ID_NOTE: self._changes.topic_id,
            MODE_NOTE: UPSERT if shape.needs_key else APPEND,
            OFFSETS_NOTE: offsets,
        }
        if lost:
            notes[LOST_NOTE] = json.dumps(lost)
        mark = BatchMark(self._checkpoint.query_id(), batch_id, notes)
        found = parsed(batch, shape)
        if self._options.bad_rows == dead_letters.STOP:
            found = dead_letters.failing_at_problems(found)
        if self._commit(found, mark, shape):
            self._write_dead_letters(found, mark, shape)
        self._changes.has_read(offsets)

    def _shape(self, facts: TopicFacts) -> RowShape:
        """Add missing columns to the table, and return the row shape."""
        if self._prepared is not None and self._prepared[0] == facts:
            return self._prepared[1]
        if self._mode not in (None, facts.lake_mode):
            raise ModeChanged(
                f"{self.table.name} has the mode {self._mode}, its topic {facts.lake_mode}: drop the table first"
            )
        self._mode = facts.lake_mode
        needs_key = facts.lake_mode == UPSERT
        columns = table_columns(facts.schemas)
        if needs_key:
            self.table.prepare(columns, upsert.PARTITIONING, upsert.TABLE_PROPERTIES)
        else:
            self.table.prepare(columns, self._options.partitioning)
        shape = row_shape(facts, self.table.columns(), needs_key=needs_key)
        self._prepared = facts, shape
        return shape

    def _commit(self, found: "DataFrame", mark: BatchMark, shape: RowShape) -> bool:
        """Commit the rows, unless the batch is already committed. Return whether dead letters must be written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        good = f.col(PROBLEM).isNull()
        if self.table.holds(mark):
            self._check_repeated(mark)
        elif shape.needs_key:
            assert isinstance(self.table, IcebergTable)
            self.written_rows += upsert.upsert(self.table, self._rows(found).select(ROW, TOMBSTONE), mark)
        else:
            # Records are counted during the write. A batch without bad records is not read a second time.
            counted = Observation()
            found = found.observe(counted, f.count_if(good).alias("good"), f.count_if(~good).alias("bad"))
            self.table.append(self._rows(found).select(f"{ROW}.*"), mark)
            self.written_rows += counted.get["good"]
            self.bad_records += counted.get["bad"]
            return bool(counted.get["bad"])
        return self._options.bad_rows != dead_letters.STOP and not found.where(~good).isEmpty()

    def _rows(self, found: "DataFrame") -> "DataFrame":
        """Return the records without a problem. If a problem stops the job, return all records."""
        from pyspark.sql import functions as f

        # If a problem stops the job, the records must not be filtered. Spark would filter before it evaluates the
        # expression that raises the error, so the error would never be raised.
        return found if self._options.bad_rows == dead_letters.STOP else found.where(f.col(PROBLEM).isNull())

    def _check_repeated(self, mark: BatchMark) -> None:
        """Check that the table holds all records of a batch whose mark is already committed."""
        held = self.table.last_mark(mark.query_id)
        assert held is not None
        table_ends, batch_ends = (next_offsets(one.notes[OFFSETS_NOTE], self.topic) for one in (held, mark))
        if any(offset > table_ends.get(partition, 0) for partition, offset in batch_ends.items()):
            raise CheckpointBehind(
                f"{self._checkpoint.uri} is older than {self.table.name}: its batch {mark.batch_id} has other end "
                "offsets than the table's. Delete this checkpoint to continue at the end of the table"
            )

    def _write_dead_letters(self, found: "DataFrame", mark: BatchMark, shape: RowShape) -> None:
        if self._options.bad_rows == dead_letters.TO_TABLE:
            dead_letters.write_to_table(self._dead_letters, found, shape, mark)
        elif self._options.bad_rows == dead_letters.TO_TOPIC:
            topic = self._options.dead_letter_topic or self.topic + dead_letters.TOPIC_SUFFIX
            dead_letters.write_to_topic(topic, self._options.server, found)
