"""kafka-python.

It raises an error only if a producer lacks a right. Other refusals are in its log, and it tries again until its time is
over. If the answer to a wrong password and the end of the connection arrive together, it drops the answer, and its log
has only the end.
"""

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, SaslAuthenticationFailedError, TopicAuthorizationFailedError

from tests.support.secured_clients.interface import CLIENT_TIMEOUT_S, COMMIT_INTERVAL_MS, Refusal, Refused, refusal_in
from tests.support.secured_clients.log_capture import captured_log
from tests.support.secured_clients.login import Login

POLL_MS = 300
CLOSE_TIMEOUT_MS = 1_000
REFUSALS = {
    TopicAuthorizationFailedError: Refusal.RIGHT,
    SaslAuthenticationFailedError: Refusal.LOGIN,
}
LOGGED = {
    Refusal.CERTIFICATE: "CERTIFICATE_VERIFY_FAILED|ALERT_UNKNOWN_CA",
    Refusal.LOGIN: "SaslAuthenticationFailedError",
    Refusal.RIGHT: "is not authorized for this client",
}
LOGGED_WITHOUT_CONNECTION = {**LOGGED, Refusal.LOGIN: f"{LOGGED[Refusal.LOGIN]}|socket disconnected"}


class WithKafkaPython:
    name = "kafka-python"

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        with captured_log("kafka") as log:
            try:
                producer = KafkaProducer(**keywords(login), max_block_ms=CLIENT_TIMEOUT_S * 1000)
                try:
                    sent = [producer.send(topic, value) for value in values]
                    for future in sent:
                        future.get(CLIENT_TIMEOUT_S)
                finally:
                    producer.close(timeout=1)
            except KafkaError as error:
                raise refusal(error, log) from error

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        values: list[bytes] = []
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        with captured_log("kafka") as log:
            try:
                consumer = KafkaConsumer(
                    topic,
                    **keywords(login),
                    group_id=group,
                    auto_offset_reset="earliest",
                    auto_commit_interval_ms=COMMIT_INTERVAL_MS,
                    fetch_max_bytes=8 * 1024 * 1024,
                )
                try:
                    while len(values) < count:
                        assert time.monotonic() < deadline, f"{len(values)} of {count} values"
                        logged = refusal_in("\n".join(log), LOGGED)
                        if logged is not None:
                            raise logged
                        for batch in consumer.poll(timeout_ms=POLL_MS).values():
                            values += [record.value for record in batch]
                finally:
                    consumer.close(timeout_ms=CLOSE_TIMEOUT_MS)
            except KafkaError as error:
                raise refusal(error, log) from error
        return values


def keywords(login: Login) -> dict[str, Any]:
    settings = login.keywords()
    settings["bootstrap_timeout_ms"] = login.connect_timeout_s * 1000
    if login.ca is not None:
        settings["ssl_cafile"] = str(login.ca)
    if login.key_store is not None:
        settings["ssl_certfile"] = str(login.key_store)
    return settings


def refusal(error: KafkaError, log: Sequence[str]) -> Exception:
    for kind, meaning in REFUSALS.items():
        if isinstance(error, kind):
            return Refused(meaning, repr(error))
    return refusal_in("\n".join(log), LOGGED_WITHOUT_CONNECTION) or error
