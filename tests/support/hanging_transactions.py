"""Transactions that hang: records of a producer id that no coordinator knows."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.protocol.producer import InitProducerIdRequest

from tests.support.clients import DEADLINE_S, unique_name
from tests.support.clients_raw import NONE, RawConnection, batch, produce_request, produced
from tests.support.server import Broker, wait_until
from tests.support.transactional_clients.interface import TRANSACTION_TIMEOUT_MS

# Versions of requests that belong to the first generation of transactions.
INIT_PRODUCER_ID_VERSION, PRODUCE_VERSION = 4, 9
VERIFICATION = "transaction.partition.verification.enable"


@contextmanager
def unverified(broker: Broker) -> Iterator[None]:
    """Inside, the server takes transactional records without asking whether their transaction knows of them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (node,) = admin.list_topics(timeout=DEADLINE_S).brokers

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(VERIFICATION, "false", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE_S)

    alter(AlterConfigOpType.SET)
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE)


def leave_hanging(broker: Broker, topic: str) -> tuple[int, int]:
    """A transactional record whose producer id no transaction has: nobody will ever end it. Producer id and offset."""
    with unverified(broker), RawConnection(broker.address) as connection:
        identity = connection.call(
            InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            ),
            INIT_PRODUCER_ID_VERSION,
        )
        assert identity.error_code == NONE
        records = batch(
            b"hanging", producer_id=identity.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        request = produce_request(topic, records, transactional_id=unique_name("ghost"))

        def offset() -> list[int]:
            answer = produced(connection.call(request, PRODUCE_VERSION))
            return [answer.base_offset] if answer.error_code == NONE else []

        # Apache Kafka takes a moment until a setting counts.
        (base_offset,) = wait_until(offset, "the record is taken", DEADLINE_S)
        return int(identity.producer_id), base_offset
