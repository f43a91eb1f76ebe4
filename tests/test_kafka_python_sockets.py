"""Sockets that are left open fail a test, unless kafka-python has left them."""

import gc
import socket
import ssl
import warnings
from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport

from kwire.testing.ports import unused_port


def leaked(leave: Callable[[], object]) -> list[str]:
    """Return the warnings about sockets that `leave` leaves to the garbage collector."""
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        leave()
        gc.collect()
    return [str(one.message) for one in found if issubclass(one.category, ResourceWarning)]


def test_a_socket_of_kafka_python_is_closed_without_a_warning() -> None:
    assert leaked(lambda: KafkaNetSocket().socket(socket.AF_INET)) == []
    assert leaked(NetworkSelector) == []
    context = ssl.create_default_context()
    context.check_hostname = False
    assert leaked(lambda: KafkaSSLTransport(None, socket.socket(), host="localhost", ssl_context=context)) == []


def test_every_other_socket_is_reported() -> None:
    assert len(leaked(socket.socket)) == 1
    context = ssl.create_default_context()
    context.check_hostname = False
    assert len(leaked(lambda: context.wrap_socket(socket.socket(), do_handshake_on_connect=False))) == 1


def test_a_refused_connection_of_kafka_python_leaves_no_warning() -> None:
    def connect() -> None:
        with pytest.raises(KafkaError):
            KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{unused_port()}", api_version_auto_timeout_ms=500)

    assert leaked(connect) == []
