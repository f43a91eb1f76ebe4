"""aiokafka. It raises an error if a right is missing; it reports other refusals only in its log, and tries again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from tests.support.secured_clients.interface import CLIENT_TIMEOUT_S, COMMIT_INTERVAL_MS, Refusal, Refused, refusal_in
from tests.support.secured_clients.log_capture import captured_log
from tests.support.secured_clients.login import Login

POLL_MS = 200
STOP_TIMEOUT_S = 1.0
LOGGED = {Refusal.CERTIFICATE: "CERTIFICATE_VERIFY_FAILED", Refusal.LOGIN: "SaslAuthenticationFailed"}
# It does not log the alert of a server that refuses the client's certificate.
LOGGED_WITHOUT_CONNECTION = {
    Refusal.LOGIN: LOGGED[Refusal.LOGIN],
    Refusal.CERTIFICATE: f"{LOGGED[Refusal.CERTIFICATE]}|Connection at .* closed",
}
Result = TypeVar("Result")


class WithAiokafka:
    name = "aiokafka"

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        async def scenario(_: Sequence[str]) -> None:
            producer = AIOKafkaProducer(**keywords(login))
            try:
                await producer.start()
                for value in values:
                    await producer.send_and_wait(topic, value)
            finally:
                await producer.stop()

        run(scenario)

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        async def scenario(log: Sequence[str]) -> list[bytes]:
            values: list[bytes] = []
            consumer = AIOKafkaConsumer(
                topic,
                **keywords(login),
                group_id=group,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=COMMIT_INTERVAL_MS,
            )
            try:
                await consumer.start()
                while len(values) < count:
                    refusal = refusal_in("\n".join(log), LOGGED)
                    if refusal is not None:
                        raise refusal
                    for batch in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                        values += [record.value for record in batch]
            finally:
                # It tries to commit as long as it is refused.
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await consumer.stop()
            return values

        return run(scenario)


def keywords(login: Login) -> dict[str, Any]:
    return {**login.keywords(), "ssl_context": login.tls_context()}


def run(scenario: Callable[[Sequence[str]], Awaitable[Result]]) -> Result:
    """Run a scenario, which gets the lines of the log, and turn errors into refusals."""

    async def within_time(log: Sequence[str]) -> Result:
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            return await scenario(log)

    with captured_log("aiokafka") as log:
        try:
            return asyncio.run(within_time(log))
        except TopicAuthorizationFailedError as error:
            raise Refused(Refusal.RIGHT, repr(error)) from error
        except KafkaError as error:
            raise refusal_in("\n".join(log), LOGGED_WITHOUT_CONNECTION) or error from error
