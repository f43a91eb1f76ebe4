"""kwire backup verify: checks the manifest, and the size and the checksum of every file."""

import argparse
from pathlib import Path

from kwire.cli.backup.byte_progress import byte_progress
from kwire.cli.backup.create import facts_of, print_text
from kwire.cli.backup.format import read_backup
from kwire.cli.backup.verification import verify_files
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error
from kwire.exit_codes import FAILED


def add(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a backup")
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    manifest, checksums = read_backup(options.folder)
    with byte_progress("verify", manifest.size_bytes) as on_bytes:
        problems = verify_files(options.folder, manifest, checksums, on_bytes)
    for problem in problems:
        print_error(problem)
    facts = {**facts_of(manifest, options.folder), "is_sound": not problems, "problems": problems}

    def show() -> None:
        print_text(manifest, options.folder)
        print("the backup is sound" if not problems else f"the backup has {len(problems)} problems; do not restore it")

    print_object(facts, options, show)
    return FAILED if problems else 0
