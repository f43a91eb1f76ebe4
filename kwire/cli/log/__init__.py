"""kwire log: verify, print and repair the files of a data directory. The commands do not use a running server."""

import argparse
import os
from pathlib import Path
from typing import Any

from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser, Run, add_verb
from kwire.exit_codes import CANNOT_RUN

VERIFY = """\
Read every batch of every segment and check headers, CRCs, offsets (ascending, without gaps), index entries, seals,
checkpoints, the catalogue, and that no unknown files are present. Nothing is written.

The server must be stopped, and cannot be started while the check runs. With --live the server may run. Then only closed
segments are checked, because the server no longer writes to them.
"""

VERIFY_END = """\
A finding is either damage or a note. A note is something that the server already knows or repairs at its next start:
a range in quarantine, a last write that a crash left incomplete, a left-over file. Only damage causes exit code 1.

exit codes:
  0    no damage
  1    damage was found
  2    the check could not be run
  130  interrupted

examples:
  kwire log verify ./kwire-data
  kwire log verify ./kwire-data --topic orders --partition 3
  kwire log verify /disk1/kwire /disk2/kwire -o json > report.json
  kwire log verify ./kwire-data --live
"""

DUMP = """\
Print the content of a file: the batches of a partition or of one segment, and with --records their records. Keys and
values are printed as text if they are UTF-8, otherwise as base64. The server may run.
"""

DUMP_END = """\
PATH is a data directory (with --topic and --partition), a partition folder, or one file:
  *.log              batches
  *.index            entries and seal
  *.txnindex         aborted transactions of a closed segment
  checkpoint         where recovery starts, leader epochs, producers, transactions
  quarantine         ranges that cannot be read
  replacement        an unfinished replacement of segments
  written            partitions written to since the last clean start
  folders            partitions that have a folder
  metastore.journal  the catalogue, commit by commit
  metastore.mirror   the second copy of the catalogue

Bytes that are not a valid batch are reported, and printing continues after them; then the exit code is 1.

examples:
  kwire log dump ./kwire-data --topic orders --partition 0 --records --limit 20
  kwire log dump ./kwire-data/orders-0 --from-offset 1000 --to-offset 1999 -o json
  kwire log dump ./kwire-data/orders-0/00000000000000000000.index
"""

ADOPT = """\
Repair the catalogue and the partition folders of a stopped server after files were lost or damaged, so that they agree
again. Folders that are missing in the catalogue are added to it; a lost or damaged partition.metadata is written again;
a damaged catalogue is rebuilt from the readable parts of its two copies. Nothing is deleted: unusable files are moved
to set-aside-TIME inside their data directory. A second run changes nothing.

Folders do not contain topic settings. A topic that is added again keeps all records (retention.ms=-1,
retention.bytes=-1). Its partition count is the highest partition number of its folders plus one. Check the settings and
the partition count after the start.
"""

ADOPT_END = """\
With several data directories, name all of them, the one with metastore.journal first.

exit codes:
  0  the catalogue and the folders agree
  1  partitions are lost, and their loss was not accepted (--accept-loss)
  2  not completed: a wrong argument, a running server, a failing disk; the changes that were made before are printed

examples:
  kwire log adopt ./kwire-data
  kwire log adopt /disk1/kwire /disk2/kwire
  kwire log adopt ./kwire-data --accept-loss orders-3 --accept-loss orders-4
"""


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    _add_verify(verbs)
    _add_adopt(verbs)
    _add_dump(verbs)


def _add(verbs: Any, name: str, purpose: str, run: Run, *, description: str, epilog: str) -> CommandParser:
    parser = add_verb(verbs, name, purpose, run, description=description, epilog=epilog)
    # Exit code 1 means that damage was found.
    parser.set_defaults(failure_code=CANNOT_RUN)
    return parser


def _add_verify(verbs: Any) -> None:
    purpose = "check every batch of a data directory"
    parser = _add(verbs, "verify", purpose, _verify, description=VERIFY, epilog=VERIFY_END)
    parser.add_argument("data_dirs", metavar="DATA_DIR", type=Path, nargs="+", help="a directory named by log.dirs")
    parser.add_argument("--topic", metavar="NAME", help="only this topic")
    parser.add_argument("--partition", metavar="NUMBER", type=_number, help="only this partition of the topic")
    parser.add_argument("--live", action="store_true", help="check closed segments only; the server may run")
    add_output(parser)
    parser.add_argument("--all", action="store_true", help="print every topic and every finding")
    parser.add_argument("--no-progress", action="store_true", help="do not show progress on stderr")
    parser.add_argument(
        "--processes",
        metavar="NUMBER",
        type=_positive,
        default=len(os.sched_getaffinity(0)),
        help="number of processes that read (default: one per core)",
    )


def _add_dump(verbs: Any) -> None:
    purpose = "print batches, records, indexes and checkpoints"
    parser = _add(verbs, "dump", purpose, _dump, description=DUMP, epilog=DUMP_END)
    parser.add_argument("path", metavar="PATH", type=Path, help="a data directory, a partition's folder or a file")
    parser.add_argument("--topic", metavar="NAME", help="a topic of the data directory")
    parser.add_argument("--partition", metavar="NUMBER", type=_number, help="a partition of the topic (default 0)")
    parser.add_argument("--from-offset", metavar="OFFSET", type=_number, default=0, help="begin at this offset")
    parser.add_argument("--to-offset", metavar="OFFSET", type=_number, help="end with this offset")
    parser.add_argument("--records", action="store_true", help="also print records")
    parser.add_argument(
        "--limit", metavar="NUMBER", type=_positive, help="print at most this many batches, or records with --records"
    )
    add_output(parser)


def _add_adopt(verbs: Any) -> None:
    purpose = "rebuild the catalogue of a stopped server from its folders"
    parser = _add(verbs, "adopt", purpose, _adopt, description=ADOPT, epilog=ADOPT_END)
    parser.add_argument("data_dirs", metavar="DATA_DIR", type=Path, nargs="+", help="a directory named by log.dirs")
    parser.add_argument(
        "--accept-loss",
        metavar="TOPIC-PARTITION",
        action="append",
        default=[],
        help="use this partition again without its lost records; if its folder is lost, it is empty, and if its last "
        "segment is damaged, it has the remaining records; new records get offsets above all that were acknowledged; "
        "repeatable",
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
    from kwire.cli.log.adopt import adopt

    return adopt(options)


def _verify(options: argparse.Namespace) -> int:
    from kwire.cli.log.verify import verify

    return verify(options)


def _dump(options: argparse.Namespace) -> int:
    from kwire.cli.log.dump import dump

    return dump(options)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be 0 or a positive number, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if _number(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text!r}")
    return int(text)
