"""confluent-kafka."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.support.secured_clients.interface import CLIENT_TIMEOUT_S, COMMIT_INTERVAL_MS, Refusal, Refused
from tests.support.secured_clients.login import Login

POLL_S = 0.1
UNTRUSTED = "alert unknown ca"
REFUSALS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Refusal.RIGHT,
    KafkaError._AUTHENTICATION: Refusal.LOGIN,
    KafkaError._SSL: Refusal.CERTIFICATE,
}


class WithConfluent:
    name = "confluent-kafka"

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        errors: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer({**login.librdkafka(), "error_cb": errors.append})
        for value in values:
            producer.produce(topic, value, on_delivery=delivered)
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        try:
            while producer.flush(POLL_S):
                raise_refusal(errors)
                assert time.monotonic() < deadline, f"not delivered: {errors}"
            raise_refusal(errors)
        finally:
            producer.purge()
            producer.flush(CLIENT_TIMEOUT_S)
        assert errors == []

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        errors: list[Any] = []
        consumer = Consumer(
            {
                **login.librdkafka(),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
                # A consumer that is refused waits for the end of its session in the group before it is closed.
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 300,
                "error_cb": errors.append,
            }
        )
        consumer.subscribe([topic])
        values: list[bytes] = []
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        try:
            while len(values) < count:
                assert time.monotonic() < deadline, f"{len(values)} of {count} values: {errors}"
                try:
                    message = consumer.poll(POLL_S)
                except KafkaException as error:
                    errors.append(error.args[0])
                    message = None
                if message is not None and message.error() is None:
                    values.append(message.value())
                elif message is not None:
                    errors.append(message.error())
                raise_refusal(errors)
        finally:
            consumer.close()
        assert [str(error) for error in errors] == []
        return values


def raise_refusal(errors: Sequence[Any]) -> None:
    for error in errors:
        kind = REFUSALS.get(error.code())
        # With TLS 1.3 the server's alert comes after the client has completed its part of the handshake.
        if error.code() == KafkaError._TRANSPORT and UNTRUSTED in error.str():
            kind = Refusal.CERTIFICATE
        if kind is not None:
            raise Refused(kind, str(error))
