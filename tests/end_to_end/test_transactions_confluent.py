"""Transactions of confluent-kafka; `tests.support.transaction_tests` says what is tested."""

import pytest

from tests.support.transaction_tests import Connect, TransactionTests
from tests.support.transactional_clients.with_confluent import ConfluentClients


class TestConfluent(TransactionTests):
    @pytest.fixture
    def connect(self) -> Connect:
        return ConfluentClients
