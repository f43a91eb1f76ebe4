"""kwire pipeline replay: sends events of a table or of files to a topic. An interrupted replay can be resumed."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.pipeline.graceful_stop import StopRequest
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake.tables import FORMATS
from kwire.pipeline.replay.checkpoint import CheckpointFile, ReplayCheckpoint
from kwire.pipeline.replay.event import CannotReplay, ReplayEvent
from kwire.pipeline.replay.rate_limit import RateLimiter
from kwire.pipeline.replay.rounds import ROUND_EVENTS_MAX, Round, in_rounds
from kwire.pipeline.replay.source import Backlog, FrameSource, Source
from kwire.pipeline.replay.target import KEEP, PLACEMENTS, Target
from kwire.pipeline.reports import job_reports as reported
from kwire.pipeline.reports.job_reports import JobReports, NoReports, job_reports
from kwire.pipeline.session import add_session_arguments, session_options, spark_session, warehouse_uri
from kwire.pipeline.topic_facts import TopicFacts, TopicFactsReader, TopicMissing
from kwire.progress import Progress, duration_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK, SEND, SKIP = "check", "send", "skip"
# The former name of `--in-doubt check`. It is accepted for one release.
FORMER_CHECK = "look"
STOPPED = "; stopped before the end, run the same command again to continue"
# A stop takes effect between two rounds. At the minimum rate a round has one event and takes at most ten seconds.
RATE_MIN, RATE_MAX = 0.1, 1_000_000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="T", required=True, help="the topic whose table or files are replayed")
    parser.add_argument("--to", metavar="T", help="the target topic (default: --topic, which must then be empty)")
    parser.add_argument(
        "--files",
        metavar="DIR",
        help="directory of event files, as written by `kwire event export`, instead of a table",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help=f"format of the table (default: {FORMATS[0]})"
    )
    parser.add_argument("--since", metavar="TIME", type=_time, help="only events from this time on, such as 2026-11-16")
    parser.add_argument("--until", metavar="TIME", type=_time, help="only events before this time")
    parser.add_argument("--rate", metavar="N", type=_rate, help="events per second, at most (default: no limit)")
    parser.add_argument(
        "--partitions",
        choices=PLACEMENTS,
        default=KEEP,
        help="keep the partition of each event, or select it by key (default: keep)",
    )
    parser.add_argument(
        "--in-doubt",
        type=_in_doubt_action,
        choices=(CHECK, SEND, SKIP),
        default=CHECK,
        help="for the events of an interrupted round: check which of them are in the target and send the others, send "
        "all, or skip all (default: check)",
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="file with the progress of the replay (default: in WAREHOUSE/_replay)"
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    reported.add_arguments(parser)
    add_session_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.since is not None and arguments.until is not None and arguments.since >= arguments.until:
        raise CannotReplay("--since must be before --until")
    began = time.monotonic()
    options = session_options(arguments, f"kwire replay {arguments.topic}")
    checkpoint_file = CheckpointFile(_checkpoint_path(arguments))
    arguments.server.check(uses_http=arguments.files is None)
    target = Target(arguments.server, arguments.to or arguments.topic, arguments.partitions)
    # A replay of files does not use the HTTP port, and the target may be another server than kwire.
    arguments.is_reported = arguments.is_reported and arguments.files is None
    stop = StopRequest()
    try:
        with checkpoint_file.locked():
            # Errors are detected before Spark is started, because its start takes seconds.
            checkpoint = checkpoint_file.read(_purpose(arguments, target))
            if arguments.to is None and not checkpoint.has_started and not target.is_empty():
                raise CannotReplay(
                    f"topic {target.topic} already has events. To add its own events again, use --to {target.topic}"
                )
            facts = _facts(arguments) if arguments.files is None else None
            spark = spark_session(options)
            # The handlers are installed after the start of Spark, which installs its own handler for Ctrl-C.
            with stop.on_signals(), job_reports(arguments, "replay") as reports:
                source = _source(spark, arguments, facts)
                replay = Replay(source, target, checkpoint_file, RateLimiter(arguments.rate), stop, reports)
                checkpoint = replay.run(
                    checkpoint.for_origin(source.origin), arguments.in_doubt, is_shown=not arguments.quiet
                )
                reports.end(reported.DONE if replay.is_complete else reported.STOPPED)
    finally:
        target.close()
    duration = duration_text(time.monotonic() - began)
    summary = (
        f"{replay.sent:,} events sent, {replay.found:,} were there already, {checkpoint.events:,} in all, {duration}"
    )
    print(f"{target.topic}: {summary}{'' if replay.is_complete else STOPPED}", flush=True)
    if stop.is_interrupt:
        raise KeyboardInterrupt
    return DONE


class Replay:
    """One run of a replay, from a checkpoint to the end of the source."""

    def __init__(
        self,
        source: Source,
        target: Target,
        checkpoint_file: CheckpointFile,
        rate_limiter: RateLimiter,
        stop: StopRequest,
        reports: JobReports | NoReports,
    ) -> None:
        self._source = source
        self._target = target
        self._checkpoint_file = checkpoint_file
        self._rate_limiter = rate_limiter
        self._stop = stop
        self._reports = reports
        self.sent = 0
        self.found = 0
        self.is_complete = False

    def run(self, checkpoint: ReplayCheckpoint, in_doubt: str, *, is_shown: bool) -> ReplayCheckpoint:
        """Send rounds until all events are sent, or until a stop is requested."""
        backlog = self._source.backlog(checkpoint.settled)
        if backlog.oldest_ms is not None:
            self._target.check_retains(backlog.oldest_ms, int(time.time() * 1000))
        bar = Progress(
            f"replay to {self._target.topic}",
            backlog.events,
            sys.stderr,
            is_shown=is_shown,
            amount_text=lambda count: f"{count:,}",
        )
        try:
            if checkpoint.is_in_doubt:
                checkpoint = self._settle(checkpoint, in_doubt)
            ends = self._target.ends()
            for whole_round in self._rounds(checkpoint, backlog):
                if self._stop.is_requested:
                    break
                checkpoint = checkpoint.start_round(whole_round.through(), ends)
                ends = {**ends, **self._send(checkpoint, whole_round)}
                checkpoint = checkpoint.finish_round(len(whole_round.events))
                done = self.sent + self.found
                bar.show(done)
                self._reports.progress(self._target.topic, done, max(0, backlog.events - done))
            else:
                self.is_complete = True
        finally:
            bar.close()
        self._checkpoint_file.write(checkpoint)
        return checkpoint

    def _rounds(self, checkpoint: ReplayCheckpoint, backlog: Backlog) -> Iterator[Round]:
        events: Iterator[ReplayEvent] = self._source.after(checkpoint.settled, backlog)
        events_max = self._rate_limiter.round_events(ROUND_EVENTS_MAX)
        return in_rounds(events, self._target.partition_for, events_max, self._target.batch_bytes)

    def _send(self, checkpoint: ReplayCheckpoint, whole_round: Round) -> dict[int, int]:
        self._rate_limiter.wait_to_send(len(whole_round.events))
        # This write also stores that the previous round is settled.
        self._checkpoint_file.write(checkpoint)
        ends = self._target.send(whole_round)
        self.sent += len(whole_round.events)
        return ends

    def _settle(self, checkpoint: ReplayCheckpoint, in_doubt: str) -> ReplayCheckpoint:
        """Complete the interrupted round: send its events that are missing in the target, or as `in_doubt` requires."""
        count = len(checkpoint.target_from)
        found = self._source.between(checkpoint.settled, checkpoint.through)
        events = [(self._target.partition_for(event, count), event) for event in found]
        if in_doubt == CHECK:
            is_there = self._target.find_sent(events, checkpoint.target_from)
        else:
            is_there = [in_doubt == SKIP] * len(events)
        missing = Round()
        for (partition, event), is_found in zip(events, is_there, strict=True):
            if is_found:
                self.found += 1
            else:
                missing.add(partition, event)
        if missing.events:
            self._send(checkpoint, missing)
        checkpoint = checkpoint.finish_round(len(events))
        self._checkpoint_file.write(checkpoint)
        return checkpoint


def _source(spark: "SparkSession", arguments: argparse.Namespace, facts: TopicFacts | None) -> FrameSource:
    """Return the events of the table of the topic, or of files, for which `facts` is None."""
    if facts is None:
        from kwire.pipeline.replay.files import events_of, lines_of

        rows = lines_of(spark, arguments.files, arguments.topic)
        source = FrameSource(rows, lambda found: events_of(arguments.topic, found))
    else:
        from kwire.pipeline.replay.table import topic_table

        table = topic_table(spark, arguments.warehouse, arguments.format, arguments.topic, facts)
        source = FrameSource(table.rows, table.events, table.topic_id)
    return source.within(arguments.since, arguments.until)


def _facts(arguments: argparse.Namespace) -> TopicFacts:
    """Return the description of the topic, whose schemas are needed to read its table.

    If the topic does not exist, return the description of the target topic.
    """
    reader = TopicFactsReader(arguments.server)
    try:
        return reader.topic(arguments.topic)
    except TopicMissing:
        if arguments.to is None:
            raise
        return reader.topic(arguments.to)


def _purpose(arguments: argparse.Namespace, target: Target) -> dict[str, Any]:
    """Return the arguments that identify this replay."""
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


def _checkpoint_path(arguments: argparse.Namespace) -> Path:
    if arguments.checkpoint is not None:
        return Path(arguments.checkpoint)
    warehouse = arguments.warehouse.removeprefix("file://").removeprefix("file:")
    if "://" in warehouse:
        raise CannotReplay("--checkpoint FILE is needed: the warehouse is not on this machine")
    return Path(warehouse) / "_replay" / f"{arguments.topic}-to-{arguments.to or arguments.topic}.json"


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a time such as 2026-11-16 or 2026-11-16T13:30, got {text!r}"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _in_doubt_action(text: str) -> str:
    return CHECK if text == FORMER_CHECK else text


def _rate(text: str) -> float:
    with suppress(ValueError):
        if RATE_MIN <= (rate := float(text)) <= RATE_MAX:
            return rate
    raise argparse.ArgumentTypeError(f"must be a number from {RATE_MIN} to {RATE_MAX:,.0f}, got {text!r}")
