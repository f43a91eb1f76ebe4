"""The first opinion: Apache Kafka's own classes in a JVM write what we read and read what we write.

Every declared message is asked about in every version, both ways: requests, responses, the records of internal topics
and what consumers of a classic group tell each other. What Kafka has no class for, kafka-python knows
(`test_kafka_python.py`); a test prints it.
"""

import struct
from typing import Any

import pytest

from kwire.wire.apis import APIS
from kwire.wire.connection import ServerConnection
from kwire.wire.frame import ReceiveMemory
from kwire.wire.records import RECORD_TYPES
from kwire.wire.schema import Api, message_of
from tests.support.java import kafka_libs
from tests.support.message_oracle import CLIENT_ID, CORRELATION_ID, MessageOracle, message_jars
from tests.wire import kafka_python_oracle
from tests.wire.cases import CASES, MESSAGES, by_message, case_names, checking
from tests.wire.java_oracle import LACKING, check_with_java, headers_in_java, java_knows, versions_in_java
from tests.wire.kafka_schemas import check_declaration, schemas_in
from tests.wire.strategies import corners, drawn

# The first run fetches the jars with Maven.
pytestmark = [pytest.mark.needs_java, pytest.mark.needs_mvn, pytest.mark.timeout(600)]

LARGEST_BYTES = 1_000_000
# Kafka's newest version of this one is unstable and not advertised.
UNSTABLE = {"InitProducerIdRequest": 6, "InitProducerIdResponse": 6}

KNOWN = [case for case in CASES if java_knows(*case)]


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    return schemas_in(
        [*message_jars().glob("kafka-clients-*.jar"), *kafka_libs().glob("kafka-*-coordinator-[0-9]*.jar")]
    )


def test_every_message_has_the_versions_that_kafka_has(message_oracle: MessageOracle) -> None:
    for cls in MESSAGES:
        kafka, ours = set(versions_in_java(message_oracle, cls)), set(message_of(cls).versions)
        assert ours - kafka == set(LACKING.get(cls.__name__, ())), cls.__name__
        assert kafka - ours == {UNSTABLE[cls.__name__]} if cls.__name__ in UNSTABLE else not kafka - ours, cls.__name__


def test_every_message_and_version_has_an_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = [case for case in CASES if not java_knows(*case) and not kafka_python_oracle.knows(*case)]
    with capsys.disabled():
        print(f"\nKafka's classes are asked in {len(KNOWN)} of {len(CASES)} messages and versions; they lack: ", end="")
        print(", ".join(f"{name} {versions}" for name, versions in LACKING.items()), end="; ")
        print(f"no oracle has: {', '.join(case_names(nowhere)) or 'nothing'}")
    assert not nowhere


@by_message(KNOWN)
def test_kafkas_classes_write_and_read_the_same_bytes(
    cls: type[Any], versions: list[int], message_oracle: MessageOracle
) -> None:
    for version in versions:
        with checking(cls, version):
            check_with_java(message_oracle, cls, version, [*drawn(cls, version), *corners(cls, version)])


def test_an_offset_of_the_older_type_has_the_layout_of_version_0(message_oracle: MessageOracle) -> None:
    for cls in RECORD_TYPES["__consumer_offsets"][0]:
        check_with_java(message_oracle, cls, 0, corners(cls, 0), f"Legacy{cls.__name__}")


@pytest.mark.parametrize("api", [*APIS.values()], ids=[api.name for api in APIS.values()])
def test_headers_are_read_and_written_as_kafka_does(api: Api, message_oracle: MessageOracle) -> None:
    for version in api.versions:
        asked, answered = headers_in_java(message_oracle, api.key, version)
        connection = ServerConnection(APIS, ReceiveMemory(LARGEST_BYTES), LARGEST_BYTES)
        request = connection.open(memoryview(asked + b"body"))
        assert request.body is not None
        assert (request.api, request.version, bytes(request.body)) == (api, version, b"body")
        assert (request.correlation_id, request.client_id) == (CORRELATION_ID, CLIENT_ID)
        framed = b"".join(connection.answer_now(request, [b"answer"]))
        assert framed == struct.pack(">i", len(answered) + 6) + answered + b"answer"


@pytest.mark.parametrize("cls", MESSAGES, ids=[cls.__name__ for cls in MESSAGES])
def test_a_declaration_says_what_kafkas_schema_says(cls: type[Any], schemas: dict[str, dict[str, Any]]) -> None:
    check_declaration(cls, schemas[cls.__name__], [version for known, version in KNOWN if known is cls])


def test_a_record_has_the_type_that_kafkas_schema_gives_it(schemas: dict[str, dict[str, Any]]) -> None:
    for topic, record_types in RECORD_TYPES.items():
        for number, record_type in record_types.items():
            # Type 0 of this topic is an older name for the layout of type 1.
            is_legacy = (topic, number) == ("__consumer_offsets", 0)
            for cls in record_type:
                assert schemas["Legacy" * is_legacy + cls.__name__]["apiKey"] == number, cls.__name__
