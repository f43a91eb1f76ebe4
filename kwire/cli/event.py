"""kwire event: export events of a running server to files, import them again, check and pack such files.

A file per event, as `kwire.events.files.dir` has them: docs/event-files.md.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kwire.broker.store.files.checking import Tally, check_topic, counted_events
from kwire.broker.store.files.layout import is_date
from kwire.broker.store.files.packing import Packed, groups_to_pack, pack_group
from kwire.broker.store.files.reading import topics_in
from kwire.broker.store.files.writing import alone
from kwire.cli.event_transfer import Moved, export_topic, import_topic, opened_export
from kwire.cli.http_client import HttpClient, add_http
from kwire.cli.progress import Progress, size_text
from kwire.cli.verbs import add_json, add_verb, print_rows, reports_failures
from storage.files import Files

DONE, PROBLEMS, CANNOT_RUN = 0, 1, 2
CHECK_COLUMNS = ("topic", "events", "first", "last", "problems")


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    exporting = _verb(verbs, "export", "write every event of some topics to a file of its own", export_events)
    add_http(exporting)
    exporting.add_argument("--to", metavar="DIR", required=True, help="made if it is not there; goes on where it ended")
    exporting.add_argument("--verify", action="store_true", help="read all files again in the end, as `verify` does")
    exporting.add_argument("topics", metavar="TOPIC", nargs="+")
    importing = _verb(verbs, "import", "publish the events of such files, in their order", import_events)
    add_http(importing)
    importing.add_argument("--from", metavar="DIR", dest="source", required=True)
    importing.add_argument(
        "--renumber", action="store_true", help="events may get other ids, because some before them are missing"
    )
    importing.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all there are")
    checking = _verb(verbs, "verify", "check that each event has its file, in its place", verify)
    _dir(checking)
    packing = _verb(verbs, "pack", "make one compressed file of each thousand old ones", pack)
    _dir(packing)
    packing.add_argument("--before", metavar="DATE", help="only events of days before this one (default: today, UTC)")


def _verb(verbs: Any, name: str, purpose: str, act: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, purpose, reports_failures(OSError, ValueError, exit_code=CANNOT_RUN)(act))
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def _dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", required=True)
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all there are")


def export_events(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.to)
    with closing(HttpClient(options.http)) as client, opened_export(files, root) as positions:
        for topic in dict.fromkeys(options.topics):
            bar = partial(_bar, f"export {topic}", options)
            moved = export_topic(files, root, client, topic, positions.get(topic), bar)
            _say(options, {"exported": topic, **moved._asdict()}, _moved_text(topic, "exported", moved))
    return _check(files, root, options.topics, options) if options.verify else DONE


def import_events(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.source)
    with closing(HttpClient(options.http)) as client:
        for topic in dict.fromkeys(options.topics or _all_topics(files, root)):
            bar = partial(_bar, f"import {topic}", options)
            moved = import_topic(files, root, client, topic, bar, is_renumbering=options.renumber)
            _say(options, {"imported": topic, **moved._asdict()}, _moved_text(topic, "imported", moved))
    return DONE


def verify(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.dir)
    return _check(files, root, options.topics or _all_topics(files, root), options)


def pack(options: argparse.Namespace) -> int:
    files, root = Files(), os.path.abspath(options.dir)
    before = options.before or datetime.now(UTC).date().isoformat()
    if not is_date(before):
        raise ValueError(f"--before takes a day such as 2025-07-06, not {before!r}")
    code = DONE
    for topic in options.topics or _all_topics(files, root):
        folders = groups_to_pack(files, root, topic, before)
        bar = _bar(f"pack {topic}", options, len(folders))
        packed: list[Packed] = []
        for number, folder in enumerate(folders, start=1):
            outcome = alone(pack_group, files, root, topic, folder)
            if isinstance(outcome, Packed):
                packed.append(outcome)
            else:
                print(f"kwire: {outcome.path}: {outcome.reason}", file=sys.stderr)
                code = PROBLEMS
            bar.show(number)
        bar.close()
        facts = {
            "groups": len(packed),
            "files": sum(one.file_count for one in packed),
            "bytes": sum(one.size_bytes for one in packed),
        }
        text = f"{topic}: {facts['files']} files became {facts['groups']}, {size_text(facts['bytes'])}"
        _say(options, {"packed": topic, **facts}, text)
    return code


def _check(files: Files, root: str, topics: list[str], options: argparse.Namespace) -> int:
    tallies: list[Tally] = []
    for topic in topics:
        bar, done = _bar(f"verify {topic}", options, counted_events(files, root, topic)), 0

        def count(shown: Progress = bar) -> None:
            nonlocal done
            done += 1
            shown.show(done)

        tallies.append(check_topic(files, root, topic, count))
        bar.close()
    for tally in tallies:
        for problem in tally.problems:
            print(f"kwire: {problem.path}: {problem.reason}", file=sys.stderr)
        if len(tally.problems) < tally.problem_count:
            print(f"kwire: {tally.topic}: {tally.problem_count - len(tally.problems)} more", file=sys.stderr)
    rows = [
        {"topic": one.topic, "events": one.events, "first": one.first, "last": one.last, "problems": one.problem_count}
        for one in tallies
    ]
    print_rows(rows, CHECK_COLUMNS, options)
    return PROBLEMS if any(one.problem_count for one in tallies) else DONE


def _all_topics(files: Files, root: str) -> list[str]:
    found = topics_in(files, root)
    if not found:
        raise ValueError(f"there are no events in {root}")
    return found


def _moved_text(topic: str, verb: str, moved: Moved) -> str:
    return f"{topic}: {moved.events:,} events {verb}, {moved.total:,} in all"


def _bar(what: str, options: argparse.Namespace, total: int) -> Progress:
    return Progress(what, total, sys.stderr, is_shown=not options.quiet, amount_text=lambda count: f"{count:,}")


def _say(options: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if options.json else text, flush=True)
