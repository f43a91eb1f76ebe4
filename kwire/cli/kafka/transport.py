"""Opens connections for the client from the options of a command."""

import argparse
import socket

from kwire.cli.connection.kafka_connection import KafkaConnection, addresses_of
from kwire.cli.connection.options import client_settings_of
from kwire.cli.connection.settings import ClientSettings
from kwire.cli.kafka.cluster import Cluster
from kwire.kafka_client.settings import Address
from kwire.wire.schema import Api


class ConnectionTransport:
    """A connection whose socket the client uses directly, to have several requests in flight."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self.address = str(connection.address)

    @property
    def raw_socket(self) -> socket.socket:
        return self._connection.raw_socket

    def version_of(self, api: Api, *, version_max: int | None) -> int:
        return self._connection.version_of(api, version_max=version_max)

    def unreachable(self, error: OSError) -> Exception:
        return self._connection.unreachable(error)


def cluster_of(options: argparse.Namespace) -> Cluster:
    """Return the cluster that the options of `add_kafka_options` name. It connects with its first request."""
    return cluster_with(client_settings_of(options))


def cluster_with(settings: ClientSettings) -> Cluster:
    def connect(host: str, port: int) -> ConnectionTransport:
        return ConnectionTransport(KafkaConnection(settings, [Address(host, port)]))

    return Cluster(connect, addresses_of(settings.bootstrap_server))
