"""kwire group: consumer groups of a running server, over its Kafka port."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "list": Entry("list groups", "kwire.cli.group.list"),
    "describe": Entry("show state, members, offsets and lag of groups", "kwire.cli.group.describe"),
    "delete": Entry("delete groups without members, with their offsets", "kwire.cli.group.delete"),
    "reset": Entry("show or set the offsets that groups without members continue from", "kwire.cli.group.reset"),
    "export": Entry("write committed offsets as CSV", "kwire.cli.group.export"),
    "delete-offsets": Entry("delete committed offsets of a group", "kwire.cli.group.delete_offsets"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
