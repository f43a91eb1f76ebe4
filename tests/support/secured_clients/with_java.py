"""Kafka's console producer and verifiable consumer with a properties file, all in one JVM.

The console consumer and the verifiable consumer write errors only to their log, which the tools do not have here. So if
one of them is refused, the consumer of the performance test is asked for the reason.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.java import JavaTools
from tests.support.secured_clients.interface import Refusal, refusal_in
from tests.support.secured_clients.login import Login

REPORTED = {
    Refusal.RIGHT: "TopicAuthorizationException",
    Refusal.LOGIN: "SaslAuthenticationException",
    Refusal.CERTIFICATE: "SslAuthenticationException",
}


class WithJava:
    name = "java"

    def __init__(self, tools: JavaTools, directory: Path) -> None:
        self._tools = tools
        self._directory = directory

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        lines = "".join(f"{value.decode()}\n" for value in values)
        # The timeout is linger.ms; each line waits for its acknowledgement, and so would wait for this as well.
        self._run("ConsoleProducer", login, "--topic", topic, "--sync", "--timeout", "0", stdin=lines)

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        reported = self._run(
            "VerifiableConsumer", login, "--topic", topic, "--group-id", group,
            "--verbose", "--max-messages", str(count),
        )  # fmt: skip
        events = [json.loads(line) for line in reported.splitlines()]
        values = [event["value"].encode() for event in events if event["name"] == "record_data"]
        if len(values) < count:
            self._run("ConsumerPerformance", login, "--topic", topic, "--group", group, "--num-records", "1")
            raise AssertionError(f"VerifiableConsumer has read only {values}")
        return values

    def _run(self, tool: str, login: Login, *arguments: str, stdin: str = "") -> str:
        server = ("--bootstrap-server", login.bootstrap)
        properties = ("--command-config", str(login.write_properties(self._directory)))
        answer = self._tools.server.call(tool, *server, *properties, *arguments, stdin=stdin)
        if answer.exit_code != 0:
            raise refusal_in(answer.stderr, REPORTED) or AssertionError(f"{tool} {arguments} ended with {answer}")
        return answer.stdout
