"""kwire log: look at the files of a data directory without a server, and rebuild its catalogue."""

import argparse
import os
from pathlib import Path
from typing import Any

from kwire.cli.verbs import add_verb

VERIFY = """\
Read every batch of every segment and check what can be checked: headers, CRCs, offsets that rise without gaps,
index entries, seals, checkpoints, the catalogue, files that do not belong. Nothing is written.

The server must be stopped. With --live it may run: then only closed segments are checked, which it never changes.
Meanwhile no server can be started on the directory, except with --live.
"""

VERIFY_END = """\
Findings are damage, or notes: what the server knows already or deals with at its next start (ranges in quarantine, a
last write that a crash tore, left-over files). Only damage makes the exit code 1.

exit codes:
  0    sound
  1    damage was found
  2    the check could not be made
  130  interrupted

examples:
  kwire log verify ./kwire-data
  kwire log verify ./kwire-data --topic orders --partition 3
  kwire log verify /disk1/kwire /disk2/kwire --json > report.json
  kwire log verify ./kwire-data --live
"""

DUMP = """\
Print what a file holds: the batches of a partition or of one segment, with --records their records too. Keys and values
are shown as text if they are UTF-8, else as base64. The server may run.
"""

DUMP_END = """\
PATH is a data directory (with --topic and --partition), the folder of a partition, or one file:
  *.log              batches
  *.index            entries and seal
  *.txnindex         aborted transactions of a closed segment
  checkpoint         where recovery starts, leader epochs, producers, transactions
  quarantine         ranges that cannot be read
  replacement        a swap of segments that is not finished
  written            partitions written since the last clean start
  folders            partitions that have a folder
  metastore.journal  the catalogue, commit by commit
  metastore.mirror   its second copy

A place that is not a batch is named, and printing goes on behind it; then the exit code is 1.

examples:
  kwire log dump ./kwire-data --topic orders --partition 0 --records --limit 20
  kwire log dump ./kwire-data/orders-0 --from-offset 1000 --to-offset 1999 --json
  kwire log dump ./kwire-data/orders-0/00000000000000000000.index
"""

ADOPT = """\
Bring the catalogue and the partition folders of a stopped server into agreement again, after files were lost or
damaged. Folders that the catalogue does not know are entered in it; a partition.metadata that is lost or damaged is
written anew; a damaged catalogue is rebuilt from what can be read of both copies. Nothing is deleted: what cannot be
used is moved to set-aside-TIME inside its data directory. A second run changes nothing.

Folders do not name settings. A topic that is entered again keeps all records (retention.ms=-1, retention.bytes=-1) and
has as many partitions as its highest folder says: check both after the start.
"""

ADOPT_END = """\
With several data directories, name all of them, the one with metastore.journal first.

exit codes:
  0  the catalogue and the folders agree
  1  partitions are lost, and their loss was not accepted
  2  nothing was done: a wrong argument, a running server, a failing disk

examples:
  kwire log adopt ./kwire-data
  kwire log adopt /disk1/kwire /disk2/kwire
  kwire log adopt ./kwire-data --accept-loss orders-3 --accept-loss orders-4
"""


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    _add_verify(verbs)
    _add_adopt(verbs)
    _add_dump(verbs)


def _add_verify(verbs: Any) -> None:
    purpose = "check every batch of a data directory"
    parser = add_verb(verbs, "verify", purpose, _verify, description=VERIFY, epilog=VERIFY_END)
    parser.add_argument("data_dirs", metavar="DATA_DIR", type=Path, nargs="+", help="a directory named by log.dirs")
    parser.add_argument("--topic", metavar="NAME", help="only this topic")
    parser.add_argument("--partition", metavar="NUMBER", type=_number, help="only this partition of the topic")
    parser.add_argument("--live", action="store_true", help="closed segments only; a server may run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--all", action="store_true", help="print every topic and every finding, however many")
    parser.add_argument("--no-progress", action="store_true", help="do not tell on stderr how far it has come")
    parser.add_argument(
        "--processes",
        metavar="NUMBER",
        type=_positive,
        default=len(os.sched_getaffinity(0)),
        help="how many to read with (default: one per core)",
    )


def _add_dump(verbs: Any) -> None:
    purpose = "print batches, records, indexes and checkpoints"
    parser = add_verb(verbs, "dump", purpose, _dump, description=DUMP, epilog=DUMP_END)
    parser.add_argument("path", metavar="PATH", type=Path, help="a data directory, a partition's folder or a file")
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--partition", metavar="NUMBER", type=_number, help="(default 0)")
    parser.add_argument("--from-offset", metavar="OFFSET", type=_number, default=0, help="begin at this offset")
    parser.add_argument("--to-offset", metavar="OFFSET", type=_number, help="end with this offset")
    parser.add_argument("--records", action="store_true", help="records too")
    parser.add_argument(
        "--limit", metavar="NUMBER", type=_positive, help="so many batches, with --records so many records"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def _add_adopt(verbs: Any) -> None:
    purpose = "rebuild the catalogue of a stopped server from its folders"
    parser = add_verb(verbs, "adopt", purpose, _adopt, description=ADOPT, epilog=ADOPT_END)
    parser.add_argument("data_dirs", metavar="DATA_DIR", type=Path, nargs="+", help="a directory named by log.dirs")
    parser.add_argument(
        "--accept-loss",
        metavar="TOPIC-PARTITION",
        action="append",
        default=[],
        help="let this partition go on without what it lost, above every offset that was ever acknowledged: empty if "
        "its folder is lost, with all that is left if its last segment is damaged; repeatable",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="the server's configuration; repeatable",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of the server, such as offsets.topic.num.partitions; repeatable",
    )


def _adopt(options: argparse.Namespace) -> int:
    from kwire.cli.log_adopt import adopt

    return adopt(options)


def _verify(options: argparse.Namespace) -> int:
    from kwire.cli.log_verify import verify

    return verify(options)


def _dump(options: argparse.Namespace) -> int:
    from kwire.cli.log_dump import dump

    return dump(options)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    if _number(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)
