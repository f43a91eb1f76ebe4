"""kwire txn abort: ends a hanging transaction of one partition, by an abort marker in its log."""

import argparse

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import named_partitions
from kwire.cli.framework.confirmation import add_yes, confirm
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.cli.txn.open_producers import PartitionProducer, producers_of
from kwire.wire.messages.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

METAVAR = "TOPIC:PARTITION"


def add(parser: CommandParser) -> None:
    parser.description = (
        "Abort a hanging transaction in one partition. `kwire txn find-hanging` names it. For a transaction that its\n"
        "coordinator knows, use `kwire txn terminate`: an abort here would not change the coordinator's state."
    )
    parser.add_argument("partition", metavar=METAVAR)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--start-offset", metavar="OFFSET", type=int, help="the first offset of the transaction")
    which.add_argument("--producer-id", metavar="N", type=int, help="the producer of the transaction")
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with kafka_client_of(options) as client:
        if ":" not in options.partition or "," in options.partition:
            raise UsageError(f"expected {METAVAR}, such as orders:0, got {options.partition!r}")
        (partition,) = named_partitions(client, [options.partition])
        open_ = [one for one in producers_of(client, [partition]) if one.is_open]
        if options.start_offset is not None:
            found = next((one for one in open_ if one.start_offset == options.start_offset), None)
            wanted = f"that begins at offset {options.start_offset}"
        else:
            found = next((one for one in open_ if one.producer_id == options.producer_id), None)
            wanted = f"of producer {options.producer_id}"
        if found is None:
            raise ValueError(f"partition {partition} has no open transaction {wanted}")
        confirm(
            f"abort the transaction of producer {found.producer_id} in partition {partition}, which begins at offset "
            f"{found.start_offset}",
            options,
        )
        abort_transaction(client, found)
    facts = found.row() | {"aborted": True}
    print_object(
        facts, options, lambda: print(f"aborted the transaction of producer {found.producer_id} in {partition}")
    )


def abort_transaction(client: KafkaClient, found: PartitionProducer) -> None:
    """Write an abort marker for an open transaction to its partition. Raises ValueError."""
    partition = found.partition
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        # It is unknown if no transaction of this producer has ended in the partition before.
        coordinator_epoch=max(0, found.coordinator_epoch),
    )
    for node, _ in client.by_leader([partition]):
        response = node.request(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
        for topic in response.markers[0].topics:
            for one in topic.partitions:
                if one.error_code:
                    raise ValueError(refusal(f"partition {partition}", one.error_code))
