"""kwire pipeline replay: events of a table, or of files, into a topic, at a pace. A second start does the rest."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.cli.progress import Progress
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake.tables import FORMATS
from kwire.pipeline.replay.event import CannotReplay, ReplayEvent
from kwire.pipeline.replay.note import Note, NoteFile
from kwire.pipeline.replay.pace import Pace
from kwire.pipeline.replay.rounds import ROUND_EVENTS_MAX, Round, in_rounds
from kwire.pipeline.replay.source import FrameSource, Outlook, Source
from kwire.pipeline.replay.target import KEEP, PLACEMENTS, Target
from kwire.pipeline.session import add_session_arguments, session_options, spark_session, warehouse_uri
from kwire.pipeline.stopping import CleanStop
from kwire.pipeline.topic_facts import TopicFacts, TopicFactsReader, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK, SEND, SKIP = "look", "send", "skip"
STOPPED = "; stopped before the end, the same command goes on from here"
# A stop is seen between two rounds, so a round is waited for ten seconds at most.
RATE_MIN, RATE_MAX = 0.1, 1_000_000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap", metavar="HOST:PORT", required=True, help="the server that gets the events")
    parser.add_argument("--http", metavar="URL", help="the server that knows the schemas of the topic, for a table")
    parser.add_argument("--topic", metavar="T", required=True, help="whose events: those of its table, or of its files")
    parser.add_argument("--to", metavar="T", help="the topic that gets them (default: --topic, if that is empty)")
    parser.add_argument(
        "--files", metavar="DIR", help="event files in the place of a table, as `kwire event export` writes"
    )
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=f"of the table ({FORMATS[0]})")
    parser.add_argument("--since", metavar="TIME", type=_time, help="only events from this time on, such as 2026-11-16")
    parser.add_argument("--until", metavar="TIME", type=_time, help="only events before this time")
    parser.add_argument("--rate", metavar="N", type=_rate, help="events per second (default: as fast as it goes)")
    parser.add_argument(
        "--partitions",
        choices=PLACEMENTS,
        default=KEEP,
        help="the partition that each event had, or the one that its key belongs to (keep)",
    )
    parser.add_argument(
        "--in-doubt",
        choices=(LOOK, SEND, SKIP),
        default=LOOK,
        help="the round that was interrupted: look whether it is there, or do not (look)",
    )
    parser.add_argument("--checkpoint", metavar="FILE", help="how far it has come (in the warehouse, below _replay)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_session_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.since is not None and arguments.until is not None and arguments.since >= arguments.until:
        raise CannotReplay("--since is not before --until: there is no time in between")
    options = session_options(arguments, f"kwire replay {arguments.topic}")
    notes = NoteFile(_checkpoint(arguments))
    target = Target(arguments.bootstrap, arguments.to or arguments.topic, arguments.partitions)
    stop = CleanStop()
    try:
        with notes.held():
            # Before Spark takes its time to start: whose checkpoint it is, and whether it may go there.
            note = notes.read(_purpose(arguments, target))
            if arguments.to is None and not note.has_begun and not target.is_empty():
                raise CannotReplay(
                    f"{target.topic} has events already. If those of its own should be in it once more, say so: "
                    f"--to {target.topic}"
                )
            spark = spark_session(options)
            # Behind the start of Spark, which takes Ctrl-C for itself.
            with stop.on_signals():
                source = _source(spark, arguments)
                replay = Replay(source, target, notes, Pace(arguments.rate), stop)
                note = replay.run(note.of(source.origin), arguments.in_doubt, is_shown=not arguments.quiet)
    finally:
        target.close()
    told = f"{replay.sent:,} events sent, {replay.found:,} were there already, {note.events:,} in all"
    print(f"{target.topic}: {told}{'' if replay.is_complete else STOPPED}", flush=True)
    if stop.is_interrupt:
        raise KeyboardInterrupt
    return DONE


class Replay:
    """One run, from the note it finds to the note it leaves."""

    def __init__(self, source: Source, target: Target, notes: NoteFile, pace: Pace, stop: CleanStop) -> None:
        self._source = source
        self._target = target
        self._notes = notes
        self._pace = pace
        self._stop = stop
        self.sent = 0
        self.found = 0
        self.is_complete = False

    def run(self, note: Note, in_doubt: str, *, is_shown: bool) -> Note:
        """Until all are sent, or the stop is asked for: then the round under way is the last."""
        outlook = self._source.outlook(note.settled)
        if outlook.oldest_ms is not None:
            self._target.check_keeps(outlook.oldest_ms, int(time.time() * 1000))
        bar = Progress(
            f"replay to {self._target.topic}",
            outlook.events,
            sys.stderr,
            is_shown=is_shown,
            amount_text=lambda count: f"{count:,}",
        )
        try:
            if note.is_in_doubt:
                note = self._settle(note, in_doubt)
            ends = self._target.ends()
            for whole_round in self._rounds(note, outlook):
                if self._stop.is_asked:
                    break
                note = note.under_way(whole_round.through(), ends)
                ends = {**ends, **self._send(note, whole_round)}
                note = note.done(len(whole_round.events))
                bar.show(self.sent + self.found)
            else:
                self.is_complete = True
        finally:
            bar.close()
        self._notes.write(note)
        return note

    def _rounds(self, note: Note, outlook: Outlook) -> Iterator[Round]:
        events: Iterator[ReplayEvent] = self._source.after(note.settled, outlook)
        events_max = self._pace.round_events(ROUND_EVENTS_MAX)
        return in_rounds(events, self._target.place, events_max, self._target.batch_bytes)

    def _send(self, note: Note, whole_round: Round) -> dict[int, int]:
        self._pace.hold(len(whole_round.events))
        # It says too that the round before is settled.
        self._notes.write(note)
        ends = self._target.send(whole_round)
        self.sent += len(whole_round.events)
        return ends

    def _settle(self, note: Note, in_doubt: str) -> Note:
        """The round that was interrupted: what is missing of it is sent now."""
        count = len(note.target_from)
        found = self._source.between(note.settled, note.through)
        events = [(self._target.place(event, count), event) for event in found]
        if in_doubt == LOOK:
            is_there = self._target.landed(events, note.target_from)
        else:
            is_there = [in_doubt == SKIP] * len(events)
        missing = Round()
        for (partition, event), is_found in zip(events, is_there, strict=True):
            if is_found:
                self.found += 1
            else:
                missing.add(partition, event)
        if missing.events:
            self._send(note, missing)
        note = note.done(len(events))
        self._notes.write(note)
        return note


def _source(spark: "SparkSession", arguments: argparse.Namespace) -> FrameSource:
    if arguments.files is not None:
        from kwire.pipeline.replay.files import events_of, lines_of

        rows = lines_of(spark, arguments.files, arguments.topic)
        source = FrameSource(rows, lambda found: events_of(arguments.topic, found))
    else:
        from kwire.pipeline.replay.table import topic_table

        table = topic_table(spark, arguments.warehouse, arguments.format, arguments.topic, _facts(arguments))
        source = FrameSource(table.rows, table.events, table.topic_id)
    return source.within(arguments.since, arguments.until)


def _facts(arguments: argparse.Namespace) -> TopicFacts:
    """Of the topic, whose schemas say how columns are events; of the one that gets them, if that is all there is."""
    if arguments.http is None:
        raise CannotReplay("a table is read with the schemas of its topic: say with --http URL who knows them")
    reader = TopicFactsReader(arguments.http, arguments.bootstrap)
    try:
        return reader.topic(arguments.topic)
    except TopicMissing:
        if arguments.to is None:
            raise
        return reader.topic(arguments.to)


def _purpose(arguments: argparse.Namespace, target: Target) -> dict[str, Any]:
    """What makes it this replay and no other."""
    return {
        "source": warehouse_uri(arguments.warehouse if arguments.files is None else arguments.files),
        "kind": "files" if arguments.files is not None else arguments.format,
        "topic": arguments.topic,
        "to": target.topic,
        "to_id": target.topic_id,
        "partitions": arguments.partitions,
        "since": arguments.since and arguments.since.isoformat(),
        "until": arguments.until and arguments.until.isoformat(),
    }


def _checkpoint(arguments: argparse.Namespace) -> Path:
    if arguments.checkpoint is not None:
        return Path(arguments.checkpoint)
    warehouse = arguments.warehouse.removeprefix("file://").removeprefix("file:")
    if "://" in warehouse:
        raise CannotReplay(
            "the warehouse is not on this machine: --checkpoint FILE says where to note how far it has come"
        )
    return Path(warehouse) / "_replay" / f"{arguments.topic}-to-{arguments.to or arguments.topic}.json"


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"no time such as 2026-11-16 or 2026-11-16T13:30: {text!r}") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _rate(text: str) -> float:
    with suppress(ValueError):
        if RATE_MIN <= (rate := float(text)) <= RATE_MAX:
            return rate
    raise argparse.ArgumentTypeError(f"no number from {RATE_MIN} to {RATE_MAX:,.0f}: {text!r}")
