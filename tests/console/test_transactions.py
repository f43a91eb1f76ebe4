"""Transactional ids, and the abort of an open transaction."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.console.driver import CONSOLE, Console
from tests.support.server import KwireProcess

pytestmark = CONSOLE

FLUSH_S = 10.0


@pytest.fixture
def open_transaction(console_server: KwireProcess) -> Iterator[str]:
    """A transactional id with an open transaction."""
    name = "nightly-import"
    producer = Producer({"bootstrap.servers": console_server.bootstrap, "transactional.id": name})
    producer.init_transactions(FLUSH_S)
    producer.begin_transaction()
    producer.produce("payments", b"not committed", partition=1)
    assert producer.flush(FLUSH_S) == 0
    yield name
    producer.purge()


def test_an_open_transaction_is_shown_and_aborted(console: Console, open_transaction: str) -> None:
    console.open("/transactions")
    console.wait_for("Ongoing")
    console.screenshot("transactions")
    console.click(open_transaction)
    console.wait_for("payments")
    console.screenshot("transaction")
    console.click("Abort")
    console.wait_for(f"kwire txn terminate {open_transaction}")
    console.click("Abort transaction")
    console.wait_for("was aborted.")
    console.wait_for("Empty")
