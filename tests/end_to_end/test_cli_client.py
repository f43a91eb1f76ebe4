"""The Kafka client of commands, with a real server."""

import socket

import pytest

from kwire.cli.connection.errors import Unreachable
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, offsets_at
from kwire.cli.connection.settings import ClientSettings
from tests.support.clients import Topics, produce_values
from tests.support.server import KwireProcess


def settings(bootstrap: str) -> ClientSettings:
    return ClientSettings(bootstrap, "PLAINTEXT", "PLAIN", None, None)


def test_the_first_bootstrap_server_that_accepts_is_used(kwire: KwireProcess) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        down = f"127.0.0.1:{held.getsockname()[1]}"
        with KafkaClient(settings(f"{down}, {kwire.bootstrap}")) as client:
            assert str(client.address) == kwire.bootstrap
            assert client.metadata([]).brokers
        with pytest.raises(Unreachable, match=f"nothing listens on {down}, {down}; "):
            KafkaClient(settings(f"{down},{down}"))


def test_offsets_come_from_the_leaders(kwire: KwireProcess, topics: Topics) -> None:
    name = topics.create("client-offsets", partitions=2)
    produce_values(kwire.bootstrap, name, [b"a", b"b", b"c"], partition=1)
    partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]
    with KafkaClient(settings(kwire.bootstrap)) as client:
        assert offsets_at(client, dict.fromkeys(partitions, LATEST)) == dict(zip(partitions, (0, 3), strict=True))
        assert offsets_at(client, {partitions[1]: EARLIEST}) == {partitions[1]: 0}
        with pytest.raises(ValueError, match=f"topic {name} has no partition 7"):
            offsets_at(client, {TopicPartition(name, 7): LATEST})
        with pytest.raises(ValueError, match=f"topic no-{name} does not exist"):
            offsets_at(client, {TopicPartition(f"no-{name}", 0): LATEST})
