"""kwire backup: backups of a running server, and data directories restored from them."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "create": Entry("back up a running server into a new folder", "kwire.cli.backup.create"),
    "verify": Entry("check that a backup is complete and not damaged", "kwire.cli.backup.verify"),
    "restore": Entry("make data directories from a backup", "kwire.cli.backup.restore"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
