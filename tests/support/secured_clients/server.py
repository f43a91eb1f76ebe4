"""A server with ACLs and a listener for every protocol, and two more for sessions."""

import socket
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kwire.testing.ports import unused_port
from tests.support.certificates import Authority
from tests.support.clients import unique_name
from tests.support.secured_clients.login import Login
from tests.support.server import HOST, KwireProcess

WAIT_S = 30.0
# Kafka allows a re-authentication at most once a second, and clients begin one after 80 to 95 % of the session.
SESSION_MS = 1_500
PASSWORD = "hunter2-is-not-stored"
SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
# The listeners by the protocol of each. SHORT has sessions of SESSION_MS, RELOADED a key store of its own.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "RELOADED": "SASL_SSL",
}


class SecuredServer:
    """The process, and its super user `admin`, which has a certificate.

    The principal of a connection is User:ANONYMOUS on PLAINTEXT, the name in the client certificate, which is
    required, on SSL, and elsewhere the user that logged in.
    """

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.reloaded_key_store = self.authority.server("reloaded.pem")
        self._monitoring_port = unused_port()
        self._ports = {name: unused_port() for name in LISTENERS}
        self.process = KwireProcess(
            directory / "kwire",
            kafka_port=None,
            settings={
                "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self._ports.items()),
                "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in LISTENERS.items()),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.authority.server()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.path),
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
                "listener.name.reloaded.ssl.keystore.type": "PEM",
                "listener.name.reloaded.ssl.keystore.location": str(self.reloaded_key_store),
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
                "kwire.authorizer": "acl",
                "kwire.http.monitoring.listener": f"{HOST}:{self._monitoring_port}",
                "super.users": "User:admin",
            },
        )
        self._admin: Any = None
        self._producer: Any = None

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(self._admin_settings())
        return self._admin

    def _admin_settings(self) -> dict[str, str]:
        key_store = self.authority.client("admin")
        return Login(self.bootstrap("SSL"), "SSL", ca=self.authority.path, key_store=key_store).librdkafka()

    def bootstrap(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def login(self, listener: str, mechanism: str | None, user: str) -> Login:
        """The login of a user with the right password or certificate."""
        protocol = LISTENERS[listener]
        return Login(
            self.bootstrap(listener),
            protocol,
            mechanism,
            user if mechanism is not None else "",
            PASSWORD if mechanism is not None else "",
            self.authority.path if protocol.endswith("SSL") else None,
            self.authority.client(user) if protocol == "SSL" else None,
        )

    def set_password(self, user: str) -> None:
        """One password for all mechanisms, in one request for each, as in Kafka's protocol."""
        for mechanism in SCRAM:
            info = ScramCredentialInfo(mechanism, 4096)
            self._alter(UserScramCredentialUpsertion(user, info, PASSWORD.encode()))

    def delete_user(self, user: str) -> None:
        for mechanism in SCRAM:
            self._alter(UserScramCredentialDeletion(user, mechanism))

    def _alter(self, change: Any) -> None:
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(WAIT_S)

    def create_topic(self, stem: str) -> str:
        name = unique_name(stem)
        for future in self.admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result(WAIT_S)
        return name

    def allow(self, users: Sequence[str], topic: str) -> None:
        """Let users write to a topic, and read it in a group of the same name."""
        rights = (
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.GROUP, AclOperation.READ),
        )
        self._create_acls((kind, topic, user, operation) for user in users for kind, operation in rights)

    def allow_group(self, users: Sequence[str], group: str) -> None:
        self._create_acls((ResourceType.GROUP, group, user, AclOperation.READ) for user in users)

    def _create_acls(self, rights: Iterator[tuple[Any, str, str, Any]]) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for kind, name, user, operation in rights
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(WAIT_S)

    def write(self, topic: str, *values: bytes) -> None:
        """Write values as the super user, over one connection."""
        if self._producer is None:
            self._producer = Producer(self._admin_settings())
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(WAIT_S) == 0

    def end_offset(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        (found,) = self.admin.list_offsets({partition: OffsetSpec.latest()}).values()
        return int(found.result(WAIT_S).offset)

    def committed(self, group: str) -> int:
        """The offset that a group of one partition has committed; -1 if there is none."""
        (found,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        partitions = found.result(WAIT_S).topic_partitions
        return int(partitions[0].offset) if partitions else -1

    def metric(self, name: str) -> int:
        with urllib.request.urlopen(f"http://{HOST}:{self._monitoring_port}/metrics", timeout=WAIT_S) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return int(float(line.split()[-1]))
        raise AssertionError(f"no metric {name}")

    def connections_opened(self) -> int:
        return self.metric('kwire_server_connections_opened_total{fate="accepted"}')

    def authentications(self, outcome: str) -> int:
        return self.metric(f'kwire_server_authentications_total{{outcome="{outcome}"}}')

    def shown_certificate(self, listener: str) -> bytes:
        """The certificate that the server shows to a new connection. It is not verified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((HOST, self._ports[listener]), WAIT_S) as plain,
            context.wrap_socket(plain) as client,
        ):
            return client.getpeercert(binary_form=True) or b""


@contextmanager
def running_secured_server(directory: Path) -> Iterator[SecuredServer]:
    server = SecuredServer(directory)
    server.process.start()
    try:
        server.process.ready()
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()
