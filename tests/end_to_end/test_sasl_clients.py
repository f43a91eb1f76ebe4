"""Real clients log in with every mechanism, and Kafka's tools manage the users."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.clients import poll_records, unique_name
from tests.support.java import JavaTools
from tests.support.sasl_server import SECRET, SaslServer, running_sasl_server
from tests.support.server import wait_until
from tests.support.users import MECHANISMS

# One worker runs all tests of the tools, in one JVM.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("kafka-tools")]

DEADLINE_S = 30.0
TOPIC = "letters"
EACH_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)
SESSION_MS = 1_500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    with running_sasl_server(tmp_path_factory.mktemp("sasl")) as started:
        started.set_password("alice")
        yield started


def confluent(server: SaslServer, mechanism: str, password: str = SECRET, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        **options,
    }


def keywords(server: SaslServer, mechanism: str, password: str = SECRET) -> dict[str, Any]:
    """Of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def properties(directory: Path, mechanism: str, user: str = "alice", password: str = SECRET) -> str:
    """A file for Kafka's tools."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = directory / f"{mechanism}-{user}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        f'username="{user}" password="{password}";\n'
    )
    return str(path)


@EACH_MECHANISM
def test_confluent_kafka(server: SaslServer, mechanism: str) -> None:
    topic = unique_name("confluent")
    producer = Producer(confluent(server, mechanism))
    producer.produce(topic, b"hello")
    assert producer.flush(DEADLINE_S) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(confluent(server, mechanism, **group))
    try:
        consumer.subscribe([topic])
        message = wait_until(lambda: consumer.poll(0.5), "a message")
        assert (message.error(), message.value()) == (None, b"hello")
    finally:
        consumer.close()


@EACH_MECHANISM
def test_kafka_python(server: SaslServer, mechanism: str) -> None:
    topic = unique_name("kafka-python")
    producer = KafkaProducer(**keywords(server, mechanism))
    producer.send(topic, b"hello").get(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(**keywords(server, mechanism), auto_offset_reset="earliest")
    try:
        consumer.assign([TopicPartition(topic, 0)])
        assert [one.value for one in poll_records(consumer, 1)] == [b"hello"]
    finally:
        consumer.close()


@EACH_MECHANISM
def test_aiokafka(server: SaslServer, mechanism: str) -> None:
    topic = unique_name("aiokafka")

    async def scenario() -> None:
        producer = AIOKafkaProducer(**keywords(server, mechanism))
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"hello")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, **keywords(server, mechanism), auto_offset_reset="earliest")
        await consumer.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                assert (await consumer.getone()).value == b"hello"
        finally:
            await consumer.stop()

    asyncio.run(scenario())


@pytest.mark.needs_kcat
@EACH_MECHANISM
def test_kcat(server: SaslServer, mechanism: str) -> None:
    topic = unique_name("kcat")
    options = [word for pair in confluent(server, mechanism).items() for word in ("-X", f"{pair[0]}={pair[1]}")]

    def kcat(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", *options, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", topic, stdin="hello\n")
    assert kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q") == "hello\n"


@pytest.mark.needs_java
@pytest.mark.needs_mvn
@EACH_MECHANISM
def test_java_tools(server: SaslServer, java: JavaTools, tmp_path: Path, mechanism: str) -> None:
    topic = unique_name("java")
    login = ("--bootstrap-server", server.bootstrap, "--command-config", properties(tmp_path, mechanism))
    java.run("TopicCommand", *login, "--create", "--topic", topic)
    java.run("ConsoleProducer", *login, "--topic", topic, stdin="hello\n")
    read = java.run(
        "consumer.ConsoleConsumer", *login, "--topic", topic, "--from-beginning", "--max-messages", "1",
        "--timeout-ms", "20000",
    )  # fmt: skip
    assert read.split() == ["hello"]


@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_kafka_configs_manages_users(server: SaslServer, java: JavaTools, tmp_path: Path) -> None:
    """Unchanged: the tool salts and hashes, and the server never sees the password."""
    tool = "kafka.admin.ConfigCommand"
    configs = (
        "--bootstrap-server", server.bootstrap, "--command-config", properties(tmp_path, "SCRAM-SHA-512"),
        "--entity-type", "users",
    )  # fmt: skip
    bob = ("--entity-name", "bob")

    def set_password(mechanism: str, password: str) -> None:
        java.run(tool, *configs, *bob, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password={password}]")

    set_password("SCRAM-SHA-256", "first")
    set_password("SCRAM-SHA-512", "second")
    described = java.run(tool, *configs, *bob, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=8192" in described
    everybody = java.run(tool, *configs, "--describe")
    assert "'alice'" in everybody
    assert "'bob'" in everybody

    def topics_of_bob(mechanism: str, password: str) -> str:
        file = properties(tmp_path, mechanism, "bob", password)
        return java.run("TopicCommand", "--bootstrap-server", server.bootstrap, "--command-config", file, "--list")

    topics_of_bob("SCRAM-SHA-256", "first")
    topics_of_bob("SCRAM-SHA-512", "second")
    topics_of_bob("PLAIN", "first")
    file = properties(tmp_path, "SCRAM-SHA-256", "bob", "second")
    refusal = java.refused("TopicCommand", "--bootstrap-server", server.bootstrap, "--command-config", file, "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in refusal
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        java.run(tool, *configs, *bob, "--alter", "--delete-config", mechanism)
    assert "'bob'" not in java.run(tool, *configs, "--describe")


@EACH_MECHANISM
def test_a_wrong_password_is_an_authentication_error_for_clients(server: SaslServer, mechanism: str) -> None:
    failed = server.authentications("failed")
    errors: list[Any] = []
    consumer = Consumer(confluent(server, mechanism, "wrong", **{"group.id": "g", "error_cb": errors.append}))
    consumer.subscribe(["anything"])
    try:

        def refusal() -> bool:
            try:
                message = consumer.poll(0.2)
                if message is not None and message.error():
                    errors.append(message.error())
            except KafkaException as error:
                errors.append(error.args[0])
            return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

        wait_until(refusal, "librdkafka reports a failed authentication")
    finally:
        consumer.close()

    async def scenario() -> None:
        producer = AIOKafkaProducer(**keywords(server, mechanism, "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(Exception, match=r"(?i)authentication|bootstrap"):
        asyncio.run(scenario())
    assert server.authentications("failed") >= failed + 2


def test_clients_authenticate_again_before_their_session_ends(tmp_path: Path) -> None:
    """KIP-368 with librdkafka: its connection outlives several sessions without an error."""
    with running_sasl_server(tmp_path, {"listener.name.sasl.connections.max.reauth.ms": str(SESSION_MS)}) as server:
        server.set_password("alice")
        errors: list[Any] = []
        producer = Producer(confluent(server, "SCRAM-SHA-256", error_cb=errors.append))
        accepted = server.metric('kwire_server_connections_opened_total{fate="accepted"}')

        def has_gone_on() -> bool:
            producer.produce(TOPIC, b"x")
            assert producer.flush(DEADLINE_S) == 0
            return server.authentications("successful") >= 4

        wait_until(has_gone_on, "four authentications")
        opened = server.metric('kwire_server_connections_opened_total{fate="accepted"}') - accepted
        assert opened <= 2, "a client that must authenticate again does so on the connection it has"
        assert (errors, server.authentications("failed")) == ([], 0)
