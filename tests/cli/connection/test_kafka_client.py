"""The Kafka client: which versions it speaks, which server it uses, and what it makes of errors."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kwire.cli.connection.error_texts import code_text, refusal
from kwire.cli.connection.errors import NotSupported, Unreachable
from kwire.cli.connection.kafka_connection import KafkaConnection, addresses_of
from kwire.cli.connection.settings import ClientSettings
from kwire.cli.framework.errors import UsageError
from kwire.errors import ErrorCode
from kwire.wire.codec import encode_message
from kwire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsRequest
from kwire.wire.messages.list_groups import LIST_GROUPS
from kwire.wire.messages.metadata import METADATA, MetadataRequest


def settings(bootstrap: str) -> ClientSettings:
    return ClientSettings(bootstrap, "PLAINTEXT", "PLAIN", None, None)


Answer = Callable[[int, int], bytes]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """The address of a server whose answers are made from the API key and the version of requests."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    request = stream.read(*struct.unpack(">i", head))
                    key, version, correlation_id = struct.unpack_from(">hhi", request)
                    body = struct.pack(">i", correlation_id) + answer(key, version)
                    connection.sendall(struct.pack(">i", len(body)) + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def versions_answer(version: int, **last_versions: int) -> bytes:
    keys = [ApiVersion(api_key=int(key[1:]), min_version=0, max_version=last) for key, last in last_versions.items()]
    return encode_message(ApiVersionsResponse(error_code=0, api_keys=keys), version)


def test_an_old_server_is_asked_for_its_versions_again() -> None:
    """KIP-511: a server that does not know the version of ApiVersions answers in version 0."""
    asked = []

    def answer(key: int, version: int) -> bytes:
        asked.append((key, version))
        if version > 0:
            unsupported = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            return encode_message(unsupported, 0)
        return versions_answer(0, k3=7, k16=20)

    with server(answer) as address, KafkaConnection(settings(address)) as connection:
        assert connection.version_of(METADATA) == 7
        assert connection.version_of(METADATA, version_max=5) == 5
        assert connection.version_of(LIST_GROUPS) == LIST_GROUPS.last_version
        assert asked == [(18, 3), (18, 0)]
        with pytest.raises(NotSupported, match="needs the API Metadata, it has versions 0 to 7"):
            connection.version_of(METADATA, version_min=8)
        with pytest.raises(NotSupported, match="needs the API DescribeConfigs, it has no version"):
            connection.request(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[]))


def test_an_answer_to_another_request_is_refused() -> None:
    def answer(key: int, version: int) -> bytes:
        return versions_answer(version, k3=7) if key == 18 else b""

    with server(answer) as address, KafkaConnection(settings(address)) as connection:
        connection.versions()
        with pytest.raises(Unreachable, match="does not answer as a Kafka server does"):
            connection.request(METADATA, MetadataRequest(topics=[]))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(UsageError, match="--bootstrap-server takes HOST:PORT"):
        addresses_of(text)


def test_addresses_may_be_those_of_ipv6() -> None:
    assert addresses_of("[::1]:9092, a:1") == [("::1", 9092), ("a", 1)]
    assert str(addresses_of("[::1]:9092")[0]) == "[::1]:9092"


def test_errors_are_sentences() -> None:
    assert refusal("topic a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == "topic a does not exist"
    assert refusal("topic a", ErrorCode.INVALID_CONFIG, "x is wrong") == "topic a: x is wrong"
    assert refusal("topic a", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' exists.") == "topic a exists already"
    assert refusal("topic a", ErrorCode.POLICY_VIOLATION, "Topic 'a' is forbidden.") == "Topic 'a' is forbidden."
    missing_right = refusal("topic b", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert missing_right.startswith("topic b: the user has no right")
    assert missing_right.endswith("an administrator adds it with kwire acl add")
    assert code_text(ErrorCode.KAFKA_STORAGE_ERROR) == "KAFKA_STORAGE_ERROR"
    assert code_text(32_000) == "error 32000"
