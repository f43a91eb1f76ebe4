"""kwire txn terminate: aborts the open transactions of transactional ids and fences their producers."""

import argparse
import time

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import TRANSACTION, KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each
from kwire.cli.txn.coordinated import described_transaction
from kwire.errors import ErrorCode
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

# How long to wait until the coordinator has ended a transaction, and between two attempts.
END_SECONDS_MAX = 10.0
PAUSE_SECONDS = 0.05


def add(parser: CommandParser) -> None:
    parser.description = (
        "Abort the open transactions of transactional ids. Their producers are fenced: they fail at their next\n"
        "request and have to be started again."
    )
    parser.add_argument("names", metavar="TRANSACTIONAL_ID", nargs="+")
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    with kafka_client_of(options) as client:
        confirm(f"abort what is open of {counted_names('transactional id', names)}, and fence the producers", options)
        return for_each(names, lambda name: terminate(client, name)).finish("terminated", options)


def terminate(client: KafkaClient, transactional_id: str) -> None:
    """Give the transactional id a new epoch, which ends its open transaction. Raises Refused."""
    # A transactional id that does not exist would be created by the next request.
    state = described_transaction(client, transactional_id)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=state.transaction_timeout_ms
    )
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        response = client.ask_coordinator(transactional_id, INIT_PRODUCER_ID, request, key_type=TRANSACTION)
        code = response.error_code
        if code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    check(f"transactional id {transactional_id}", code)
