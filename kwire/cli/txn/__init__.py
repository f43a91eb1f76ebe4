"""kwire txn: transactions of a running server, over its Kafka port."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "list": Entry("list transactional ids with state and producer", "kwire.cli.txn.list"),
    "describe": Entry("show state, producer, age and partitions of transactional ids", "kwire.cli.txn.describe"),
    "producers": Entry("list the producers of partitions and their open transactions", "kwire.cli.txn.producers"),
    "find-hanging": Entry("find open transactions that no coordinator knows", "kwire.cli.txn.find_hanging"),
    "abort": Entry("abort a hanging transaction in one partition", "kwire.cli.txn.abort"),
    "terminate": Entry("abort the open transactions of transactional ids", "kwire.cli.txn.terminate"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
