"""kwire txn find-hanging: open transactions in partitions that no coordinator knows.

Such a transaction is never ended by itself: consumers that read committed records wait for it forever, and compaction
stops there. `kwire txn abort` ends it.
"""

import argparse
from collections.abc import Iterable

from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import METAVAR, all_partitions, named_partitions
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.txn.coordinated import described_transaction, listed_transactions
from kwire.cli.txn.list import duration_of
from kwire.cli.txn.open_producers import PartitionProducer, producers_of
from kwire.cli.values.times import now_ms

COLUMNS = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_timestamp")
WIDE_COLUMNS = ("coordinator_epoch", "last_sequence")
# Kafka's default of transaction.max.timeout.ms. Coordinators end transactions that are older.
LONGER_THAN_DEFAULT = "15m"


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--topic", metavar=METAVAR, action="append", default=[], help="partitions to search; repeatable (default: all)"
    )
    parser.add_argument(
        "--longer-than",
        metavar="DURATION",
        default=LONGER_THAN_DEFAULT,
        help="how long ago the last record was written at least; use at least transaction.max.timeout.ms of the "
        f"server (default: {LONGER_THAN_DEFAULT})",
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    longer_than_ms = duration_of(options.longer_than)
    with kafka_client_of(options) as client:
        partitions = named_partitions(client, options.topic) if options.topic else all_partitions(client)
        before_ms = now_ms() - longer_than_ms
        candidates = [
            one for one in producers_of(client, partitions) if one.is_open and one.last_timestamp_ms <= before_ms
        ]
        found = hanging_transactions(client, candidates)
    print_rows([one.row() for one in sorted(found)], COLUMNS, options, wide=WIDE_COLUMNS)


def hanging_transactions(client: KafkaClient, candidates: Iterable[PartitionProducer]) -> list[PartitionProducer]:
    """Return those of these open transactions that their coordinators do not know. Raises Refused."""
    by_producer: dict[int, list[PartitionProducer]] = {}
    for one in candidates:
        by_producer.setdefault(one.producer_id, []).append(one)
    if not by_producer:
        return []
    ids = {row["producer_id"]: row["id"] for row in listed_transactions(client, producer_ids=list(by_producer))}
    hanging: list[PartitionProducer] = []
    for producer_id, found in by_producer.items():
        known: set[tuple[str, int]] = set()
        if producer_id in ids:
            state = described_transaction(client, ids[producer_id])
            if state.producer_id == producer_id:
                known = {(topic.topic, index) for topic in state.topics for index in topic.partitions}
        hanging += [one for one in found if tuple(one.partition) not in known]
    return hanging
