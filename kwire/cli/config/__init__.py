"""kwire config: settings of brokers, topics and groups of a running server, over its Kafka port."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "list": Entry("list the settings that were set, of all brokers and topics or as named", "kwire.cli.config.list"),
    "describe": Entry("show all settings with source, default and documentation", "kwire.cli.config.describe"),
    "set": Entry("set settings", "kwire.cli.config.set"),
    "delete": Entry("delete settings, so that the default applies again", "kwire.cli.config.delete"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
