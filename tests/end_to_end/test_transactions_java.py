"""Transactions of the Java client, in both generations; `tests.support.transaction_tests` says what is tested.

The client chooses by the level of the feature `transaction.version` that the server tells it: at 2 it has every
transaction get an epoch of its own and partitions added by what it produces (KIP-890), below it adds them itself.
"""

from collections.abc import Iterator

import pytest

from tests.support.server import Broker
from tests.support.transaction_tests import Connect, TransactionTests
from tests.support.transactional_clients.interface import Family
from tests.support.transactional_clients.with_java import JavaClients, TransactionJvm

# The first run fetches the client with Maven and compiles the program.
pytestmark = [pytest.mark.needs_java, pytest.mark.needs_mvn, pytest.mark.timeout(600)]

FEATURE = "transaction.version"


@pytest.fixture(scope="module")
def jvm() -> Iterator[TransactionJvm]:
    jvm = TransactionJvm()
    yield jvm
    jvm.close()


class TestSecondGeneration(TransactionTests):
    # The server knows the epoch as the one that it ended by itself.
    word_of_an_abandoned_commit = "invalidtxnstate"

    @pytest.fixture
    def connect(self, jvm: TransactionJvm) -> Connect:
        return lambda bootstrap: JavaClients(jvm, bootstrap)


class TestFirstGeneration(TransactionTests):
    @pytest.fixture
    def connect(self, jvm: TransactionJvm) -> Connect:
        def connected(bootstrap: str) -> Family:
            jvm.call("finalize", bootstrap, FEATURE, "1")
            return JavaClients(jvm, bootstrap)

        return connected

    @pytest.fixture(autouse=True)
    def restored(self, jvm: TransactionJvm, broker: Broker) -> Iterator[None]:
        """The server is shared with other tests, which want the level that a new one has."""
        yield
        jvm.call("finalize", broker.bootstrap, FEATURE, "2")
