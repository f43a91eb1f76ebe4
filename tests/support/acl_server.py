"""A server with ACLs and all four kinds of listeners, and a raw connection of each kind.

The plain connection is that of User:ANONYMOUS, the others are those of User:alice: with a certificate, with the
mechanism PLAIN, and with SCRAM-SHA-256 over TLS. The super user has a certificate and one connection.
"""

import hashlib
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kwire.access.acl import Acl, Permission
from kwire.access.principal import ANONYMOUS
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.testing.ports import unused_port
from kwire.wire.apis import API_VERSIONS
from kwire.wire.codec import decode_message
from kwire.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.schema import message_of
from storage.batch.record_batch import Record, build_batch
from tests.support import acls
from tests.support.access_cases import Subject
from tests.support.certificates import Authority
from tests.support.group_access import ALICE, Right
from tests.support.sasl_server import SECRET, SaslSocket
from tests.support.server import HOST, KwireProcess
from tests.support.users import ScramClient

# Kinds of connections, and the principal of each.
PLAIN, TLS, SASL, SASL_TLS = "plain", "tls", "sasl", "sasl-tls"
KINDS = {PLAIN: ANONYMOUS, TLS: ALICE, SASL: ALICE, SASL_TLS: ALICE}
LISTENERS = {PLAIN: "PLAINTEXT", TLS: "SSL", SASL: "SASL_PLAINTEXT", SASL_TLS: "SASL_SSL"}

# The records that every topic has. No refused response may contain the value.
SECRET_VALUE = b"the-value-of-a-secret-record"
RECORD_COUNT = 3


class Answer(NamedTuple):
    """A response, and its bytes."""

    response: Any
    body: bytes


class Connection(SaslSocket):
    """A raw connection that sends the messages of this package."""

    def receive(self, request: Any, version: int) -> Answer:
        api = HANDLERS[message_of(type(request)).key].api
        body = self.raw.receive_frame()[4:]
        # The header of a flexible response has tagged fields, except that of ApiVersions.
        if version >= api.first_flexible and api is not API_VERSIONS:
            body = body[1:]
        return Answer(decode_message(api.response, version, memoryview(bytearray(body))), body)

    def call(self, request: Any, version: int) -> Any:
        return self.answer(request, version).response

    def answer(self, request: Any, version: int) -> Answer:
        self.send(request, version)
        return self.receive(request, version)


class AclServer:
    """The process, a connection of each kind, and the connection of the super user."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self._ports = {kind: unused_port() for kind in KINDS}
        listeners = ",".join(f"{LISTENERS[kind]}://{HOST}:{port}" for kind, port in self._ports.items())
        self.process = KwireProcess(
            directory / "kwire",
            kafka_port=None,
            settings={
                "listeners": listeners,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._authority.server()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._authority.path),
                "listener.name.ssl.ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "kwire.authorizer": "acl",
                "super.users": "User:admin",
                # No member and no transaction of a test ends by itself.
                "group.consumer.max.session.timeout.ms": "600000",
                "group.consumer.session.timeout.ms": "600000",
                "transaction.max.timeout.ms": "900000",
            },
        )
        self.connections: dict[str, Connection] = {}
        self._admin: Connection | None = None

    @property
    def admin(self) -> Connection:
        assert self._admin is not None
        return self._admin

    def open(self, stack: ExitStack) -> None:
        """Connect. All connections stay open until the stack is closed."""
        self._admin = stack.enter_context(self._connect(TLS, "admin"))
        self._set_password("alice", SECRET)
        for kind in KINDS:
            self.connections[kind] = stack.enter_context(self.connect(kind))

    def connect(self, kind: str) -> Connection:
        """Return a new connection that has logged in."""
        connection = self._connect(kind, "alice" if kind == TLS else None)
        if kind == SASL:
            assert connection.log_in().error_code == ErrorCode.NONE
        if kind == SASL_TLS:
            scram = ScramClient("SCRAM-SHA-256", "alice", SECRET)
            assert connection.handshake("SCRAM-SHA-256").error_code == ErrorCode.NONE
            final = scram.final(connection.authenticate(scram.first()).auth_bytes)
            assert connection.authenticate(final).error_code == ErrorCode.NONE
        return connection

    def _connect(self, kind: str, user: str | None) -> Connection:
        context = None
        if kind in (TLS, SASL_TLS):
            context = ssl.create_default_context(cafile=str(self._authority.path))
            if user is not None:
                context.load_cert_chain(self._authority.client(user))
        return Connection((HOST, self._ports[kind]), tls=context)

    def _set_password(self, user: str, password: str) -> None:
        salt, iterations = bytes(range(16)), 4096
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        change = ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=iterations, salt=salt, salted_password=salted
        )
        (result,) = self.admin.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[change]), 0).results
        assert result.error_code == ErrorCode.NONE

    def set_acls(self, wanted: Iterable[Acl]) -> None:
        """Replace all ACLs, by two requests of the super user."""
        response = self.admin.call(acls.deletion(acls.one_filter()), 3)
        assert [one.error_code for one in response.filter_results] == [0]
        rows = [
            (
                int(one.resource_type),
                one.name,
                int(one.pattern_type),
                str(one.principal),
                one.host,
                int(one.operation),
                int(one.permission),
            )
            for one in dict.fromkeys(wanted)
        ]
        if rows:
            response = self.admin.call(acls.creation(*rows), 3)
            assert {one.error_code for one in response.results} == {0}

    def allow(self, *rights: Right, deny: Sequence[Right] = ()) -> None:
        """Replace all ACLs: both principals have the rights, and those of `deny` are denied."""
        principals = set(KINDS.values())
        allowed = [right.acl(one) for right in rights for one in principals]
        self.set_acls(allowed + [right.acl(one, permission=Permission.DENY) for right in deny for one in principals])

    def create(self, *names: str) -> dict[str, Subject]:
        """Create topics with one partition and some records."""
        new = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        created = self.admin.call(CreateTopicsRequest(topics=new), 7).topics
        assert [one.error_code for one in created] == [0] * len(names)
        self.append(*names, count=RECORD_COUNT)
        return {one.name: Subject(one.name, one.topic_id) for one in created}

    def append(self, *names: str, count: int = 1) -> None:
        """Append records to topics."""
        batch = memoryview(build_batch([Record(b"key", SECRET_VALUE, 0)] * count))
        data = [
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)]) for name in names
        ]
        response = self.admin.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), 11)
        assert {part.error_code for one in response.responses for part in one.partition_responses} == {0}


@contextmanager
def running_acl_server(directory: Path) -> Iterator[AclServer]:
    server = AclServer(directory)
    server.process.start()
    try:
        server.process.ready()
        with ExitStack() as stack:
            server.open(stack)
            yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()
