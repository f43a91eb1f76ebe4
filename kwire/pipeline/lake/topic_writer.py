"""Writes the micro-batches of one topic to its table, each once.

Schemas are asked for after Spark has decided where a batch ends, so they are at least as new as every event in it: a
table has the columns of an event before the event comes.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.pipeline.changes import TopicChanged, TopicWatch, next_offsets
from kwire.pipeline.columns import TableNameClash, table_columns
from kwire.pipeline.lake import dead_letters, upsert
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.iceberg import IcebergTable
from kwire.pipeline.lake.tables import BatchMark, Lake, Partitioning, Table
from kwire.pipeline.source import EARLIEST, PROBLEM, ROW, TOMBSTONE, RowShape, parsed, row_shape
from kwire.pipeline.topic_facts import APPEND, UPSERT, ServerUnreachable, TopicFacts, TopicFactsReader, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Notes in the marks of a table.
TOPIC_NOTE, TOPIC_ID_NOTE, MODE_NOTE, OFFSETS_NOTE = "topic", "topic-id", "mode", "offsets"
# Of records that were gone when their batch was begun: [partition, first offset, offset after the last].
LOST_NOTE = "lost"


class TableBehind(ValueError):
    """The table lacks what the checkpoint says it has."""


class CheckpointBehind(ValueError):
    """The checkpoint is an older one: it repeats the numbers of batches, but not the batches."""


class ModeChanged(ValueError):
    """A table of records cannot go on as one of keys, nor the other way round."""


@dataclass(frozen=True, slots=True)
class LakeOptions:
    bootstrap: str
    partitioning: Partitioning
    # One of dead_letters.CHOICES, and the topic that gets them (None: one beside the topic they come from).
    bad_rows: str = dead_letters.TO_TABLE
    dead_letter_topic: str | None = None
    # Whether records that were deleted before they were read stop the job, or are noted and passed over.
    stops_at_loss: bool = True


class TopicWriter:
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
        self._dead_letters = dead_letters.dead_letter_table(lake, table_name)
        self._reader = reader
        self._checkpoint = checkpoint
        self._options = options
        last = self._last_mark(self.table)
        if options.bad_rows == dead_letters.TO_TABLE:
            self._last_mark(self._dead_letters)
        self._watch = TopicWatch(
            reader,
            topic,
            last.notes[TOPIC_ID_NOTE] if last else None,
            last.notes[OFFSETS_NOTE] if last else None,
            stops_at_loss=options.stops_at_loss,
        )
        self._mode = last.notes[MODE_NOTE] if last else None
        self._prepared: tuple[TopicFacts, RowShape] | None = None
        # What made a batch fail, in its own words.
        self.failure: Exception | None = None

    def _last_mark(self, table: Table) -> BatchMark | None:
        """TableNameClash if it says that the table is not ours."""
        last = table.last_mark()
        if last is not None and last.notes.get(TOPIC_NOTE) != self.topic:
            owner = last.notes.get(TOPIC_NOTE) or "another job"
            raise TableNameClash(f"{table.name} is the table of {owner}, not of {self.topic}")
        return last

    def starting_offsets(self) -> str:
        """Where a query without a checkpoint begins, once it is sure that the table can go on."""
        self._watch.check()
        self._check_checkpoint()
        return EARLIEST if self.table.last_mark() is None else self._watch.starting_offsets()

    def prepare(self) -> None:
        """Make the table, or give it the columns it lacks: it is there also where no event is."""
        self._shape(self._reader.topic(self.topic))

    def _check_checkpoint(self) -> None:
        """What Spark has noted as done must be in the table, or going on from there would leave a gap."""
        done = self._checkpoint.last_done()
        if done is not None and not self.table.holds(BatchMark(self._checkpoint.query_id(), done)):
            raise TableBehind(
                f"{self.table.name} does not hold batch {done}, which {self._checkpoint.uri} has noted as done: the "
                "table was dropped or set back, or is of another format. Without this checkpoint the job begins where "
                "the table ends"
            )

    def explained(self) -> Exception | None:
        """Why its query failed: what became of the topic, or what a batch failed of, in its own words."""
        try:
            self._watch.check()
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
        # Before the table takes in anything: another topic's schemas are not for it.
        lost = self._watch.check_batch(self._checkpoint.begun_offsets(), offsets)
        shape = self._shape(self._reader.topic(self.topic))
        notes = {
            TOPIC_NOTE: self.topic,
            TOPIC_ID_NOTE: self._watch.topic_id,
            MODE_NOTE: UPSERT if shape.needs_key else APPEND,
            OFFSETS_NOTE: offsets,
        }
        if lost:
            notes[LOST_NOTE] = json.dumps(lost)
        mark = BatchMark(self._checkpoint.query_id(), batch_id, notes)
        found = parsed(batch, shape)
        if self._options.bad_rows == dead_letters.STOP:
            found = dead_letters.stopping_at_problems(found)
        if self._commit(found, mark, shape):
            self._bury(found, mark, shape)
        self._watch.has_read(offsets)

    def _shape(self, facts: TopicFacts) -> RowShape:
        """How rows are made, after the table has taken in what is new."""
        if self._prepared is not None and self._prepared[0] == facts:
            return self._prepared[1]
        if self._mode not in (None, facts.lake_mode):
            raise ModeChanged(f"{self.table.name} was begun with the mode {self._mode}, not {facts.lake_mode}")
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
        """Commit the rows, unless they are there already. Returns whether there are records with problems."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        good = f.col(PROBLEM).isNull()
        if self.table.holds(mark):
            self._check_repeated(mark)
        elif shape.needs_key:
            assert isinstance(self.table, IcebergTable)
            upsert.upsert(self.table, self._rows(found).select(ROW, TOMBSTONE), mark)
        else:
            # Counted on the way: most batches have no bad record, and then nothing is read a second time.
            counted = Observation()
            found = found.observe(counted, f.count_if(~good).alias("bad"))
            self.table.append(self._rows(found).select(f"{ROW}.*"), mark)
            return bool(counted.get["bad"])
        return self._options.bad_rows != dead_letters.STOP and not found.where(~good).isEmpty()

    def _rows(self, found: "DataFrame") -> "DataFrame":
        """Those without a problem."""
        from pyspark.sql import functions as f

        # Where a problem stops the job nothing may be filtered: Spark filters first and looks at rows then, so it would
        # never come to the one that is to fail.
        return found if self._options.bad_rows == dead_letters.STOP else found.where(f.col(PROBLEM).isNull())

    def _check_repeated(self, mark: BatchMark) -> None:
        """What a batch brings that is not written again must be in the table."""
        held = self.table.last_mark(mark.query_id)
        assert held is not None
        there, comes = (next_offsets(one.notes[OFFSETS_NOTE], self.topic) for one in (held, mark))
        if any(offset > there.get(partition, 0) for partition, offset in comes.items()):
            raise CheckpointBehind(
                f"{self._checkpoint.uri} is older than {self.table.name}: it ends batch {mark.batch_id} elsewhere than "
                "the table does. Without this checkpoint the job begins where the table ends"
            )

    def _bury(self, found: "DataFrame", mark: BatchMark, shape: RowShape) -> None:
        if self._options.bad_rows == dead_letters.TO_TABLE:
            dead_letters.write_to_table(self._dead_letters, found, shape, mark)
        elif self._options.bad_rows == dead_letters.TO_TOPIC:
            topic = self._options.dead_letter_topic or self.topic + dead_letters.TOPIC_SUFFIX
            dead_letters.write_to_topic(topic, self._options.bootstrap, found)
