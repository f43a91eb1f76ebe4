"""Kafka's message classes, for the tests that ask them."""

from collections.abc import Iterator

import pytest

from tests.support.message_oracle import MessageOracle


@pytest.fixture(scope="session")
def message_oracle() -> Iterator[MessageOracle]:
    oracle = MessageOracle()
    try:
        yield oracle
    finally:
        oracle.close()
