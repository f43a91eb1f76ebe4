"""kwire event: publish and print events of a running server, export them to files, import, verify and pack such files.

The files have the same layout as those of the setting `kwire.events.files.dir` (docs/event-files.md): one file per
event, or one file per packed group of events.
"""

import argparse
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kwire.cli.connection.options import add_http_options, http_client_of
from kwire.cli.event.listing import add_list
from kwire.cli.event.publish import add_publish
from kwire.cli.event.tail import add_tail
from kwire.cli.event.transfer import TransferResult, export_topic, import_topic, opened_export
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_object, print_rows
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.cli.framework.progress import progress_bar
from kwire.cli.framework.runner import print_error
from kwire.cli.framework.several_names import for_each
from kwire.exit_codes import CANNOT_RUN
from kwire.progress import Progress, size_text
from kwire.streams.event_store.files.layout import is_date
from kwire.streams.event_store.files.packing import Packed, groups_to_pack, pack_group
from kwire.streams.event_store.files.reader import topics_in
from kwire.streams.event_store.files.verification import Tally, check_topic, configured_count
from kwire.streams.event_store.files.writer import with_lock
from storage.disk.files import Files

DONE, PROBLEMS = 0, 1
CHECK_COLUMNS = ("topic", "events", "first", "last", "problems")


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    add_publish(verbs)
    add_list(verbs)
    add_tail(verbs)
    export = _verb(verbs, "export", "write every event of these topics to its own file", export_events)
    add_http_options(export)
    export.add_argument(
        "--to",
        metavar="DIR",
        required=True,
        help="target directory, created if missing; a repeated export continues where the last one ended",
    )
    export.add_argument("--verify", action="store_true", help="afterwards read all files again, as `verify` does")
    export.add_argument("topics", metavar="TOPIC", nargs="+")
    import_ = _verb(verbs, "import", "publish the events of exported files, in order", import_events)
    add_http_options(import_)
    import_.add_argument("--from", metavar="DIR", dest="source", required=True, help="directory of an export")
    import_.add_argument("--renumber", action="store_true", help="if events are missing, give later events new ids")
    import_.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all topics in the directory")
    verify_ = _verb(verbs, "verify", "check that every event has its file, at the right path", verify)
    _dir(verify_)
    pack_ = _verb(verbs, "pack", "compress each thousand old files into one", pack)
    _dir(pack_)
    pack_.add_argument("--before", metavar="DATE", help="only events of days before this one (default: today, UTC)")


def _verb(verbs: Any, name: str, purpose: str, act: Callable[[argparse.Namespace], int]) -> CommandParser:
    parser = add_verb(verbs, name, purpose, act)
    parser.set_defaults(failure_code=CANNOT_RUN)
    add_output(parser)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    return parser


def _dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", required=True, help="directory of event files")
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all topics in the directory")


def export_events(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.to)
    with closing(http_client_of(options)) as client, opened_export(files, root) as positions:

        def export(topic: str) -> None:
            bar = partial(_bar, f"export {topic}", options)
            result = export_topic(files, root, client, topic, positions.get(topic), bar)
            _print_result(options, {"exported": topic, **result._asdict()}, _result_text(topic, "exported", result))

        outcomes = for_each(options.topics, export)
    return max(outcomes.code, _check(files, root, outcomes.done, options) if options.verify else DONE)


def import_events(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.source)
    with closing(http_client_of(options)) as client:

        def import_one(topic: str) -> None:
            bar = partial(_bar, f"import {topic}", options)
            result = import_topic(files, root, client, topic, bar, is_renumbering=options.renumber)
            _print_result(options, {"imported": topic, **result._asdict()}, _result_text(topic, "imported", result))

        return for_each(options.topics or _all_topics(files, root), import_one).code


def verify(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.dir)
    return _check(files, root, list(dict.fromkeys(options.topics)) or _all_topics(files, root), options)


def pack(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.dir)
    before = options.before or datetime.now(UTC).date().isoformat()
    if not is_date(before):
        raise UsageError(f"--before: not a date such as 2025-07-06: {before!r}")
    known, code = _all_topics(files, root), DONE

    def pack_topic(topic: str) -> None:
        nonlocal code
        if topic not in known:
            raise ValueError(f"{root} contains no events of topic {topic}")
        folders = groups_to_pack(files, root, topic, before)
        bar = _bar(f"pack {topic}", options, len(folders))
        packed: list[Packed] = []
        for number, folder in enumerate(folders, start=1):
            outcome = with_lock(pack_group, files, root, topic, folder)
            if isinstance(outcome, Packed):
                packed.append(outcome)
            else:
                print_error(f"{outcome.path}: {outcome.reason}")
                code = PROBLEMS
            bar.show(number)
        bar.close()
        facts = {
            "groups": len(packed),
            "files": sum(one.file_count for one in packed),
            "bytes": sum(one.size_bytes for one in packed),
        }
        text = f"{topic}: {facts['files']} files packed into {facts['groups']}, {size_text(facts['bytes'])}"
        _print_result(options, {"packed": topic, **facts}, text)

    return max(for_each(options.topics or known, pack_topic).code, code)


def _check(files: Files, root: str, topics: list[str], options: argparse.Namespace) -> int:
    tallies: list[Tally] = []
    for topic in topics:
        bar, done = _bar(f"verify {topic}", options, configured_count(files, root, topic)), 0

        def count(shown: Progress = bar) -> None:
            nonlocal done
            done += 1
            shown.show(done)

        tallies.append(check_topic(files, root, topic, count))
        bar.close()
    for tally in tallies:
        for problem in tally.problems:
            print_error(f"{problem.path}: {problem.reason}")
        if len(tally.problems) < tally.problem_count:
            print_error(f"{tally.topic}: {tally.problem_count - len(tally.problems)} more")
    rows = [
        {"topic": one.topic, "events": one.events, "first": one.first, "last": one.last, "problems": one.problem_count}
        for one in tallies
    ]
    print_rows(rows, CHECK_COLUMNS, options)
    return PROBLEMS if any(one.problem_count for one in tallies) else DONE


def _all_topics(files: Files, root: str) -> list[str]:
    found = topics_in(files, root)
    if not found:
        raise ValueError(f"{root} contains no events")
    return found


def _result_text(topic: str, verb: str, result: TransferResult) -> str:
    return f"{topic}: {result.events:,} events {verb}, {result.total:,} in all"


def _bar(what: str, options: argparse.Namespace, total: int) -> Progress:
    return progress_bar(what, total, is_wanted=not options.quiet, amount_text=lambda count: f"{count:,}")


def _print_result(options: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print_object(facts, options, lambda: print(text, flush=True))
