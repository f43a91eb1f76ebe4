"""Transactions of kafka-python; `tests.support.transaction_tests` says what is tested."""

import pytest

from tests.support.transaction_tests import Connect, TransactionTests
from tests.support.transactional_clients.with_kafka_python import KafkaPythonClients


class TestKafkaPython(TransactionTests):
    @pytest.fixture
    def connect(self) -> Connect:
        return KafkaPythonClients
