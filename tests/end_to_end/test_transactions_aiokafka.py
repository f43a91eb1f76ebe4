"""Transactions of aiokafka; `tests.support.transaction_tests` says what is tested."""

import pytest

from tests.support.transaction_tests import Connect, TransactionTests
from tests.support.transactional_clients.with_aiokafka import AioKafkaClients


@pytest.mark.full("kafka-python, librdkafka and Java do the same transactions at every effort")
class TestAioKafka(TransactionTests):
    @pytest.fixture
    def connect(self) -> Connect:
        return AioKafkaClients
