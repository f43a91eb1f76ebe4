"""kwire cluster: the state of a running server."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "info": Entry("show the server: its id, version, listeners, disks and counts", "kwire.cli.cluster.info"),
    "health": Entry("check whether the server is healthy; exit code 1 if not", "kwire.cli.cluster.health"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
