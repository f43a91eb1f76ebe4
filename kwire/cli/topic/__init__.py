"""kwire topic: topics of a running server, over its Kafka port."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "list": Entry("list topics", "kwire.cli.topic.list"),
    "create": Entry("create topics", "kwire.cli.topic.create"),
    "describe": Entry("show partitions, offsets and settings", "kwire.cli.topic.describe"),
    "alter": Entry("set or delete settings of topics", "kwire.cli.topic.alter"),
    "add-partitions": Entry("raise the number of partitions", "kwire.cli.topic.add_partitions"),
    "trim": Entry("delete the records before an offset or a time", "kwire.cli.topic.trim"),
    "delete": Entry("delete topics and their records", "kwire.cli.topic.delete"),
    "produce": Entry("write records from standard input or a file", "kwire.cli.topic.produce"),
    "consume": Entry("print records", "kwire.cli.topic.consume"),
    "export": Entry("write the records of a topic to a file", "kwire.cli.topic.export_records"),
    "import": Entry("write the records of a file to a topic", "kwire.cli.topic.import_records"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
