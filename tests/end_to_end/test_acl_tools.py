"""kafka-acls, unchanged, and the admin clients of kafka-python and confluent-kafka: ACLs are added, listed and removed.

The listener has no authentication, so every client is User:ANONYMOUS. Here this is a super user.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import NoError, SecurityDisabledError

from tests.support.clients import DEADLINE_S
from tests.support.java import JavaTools
from tests.support.server import Broker, KwireProcess

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("kafka-tools")]

ACLS = "AclCommand"
SETTINGS = {"kwire.authorizer": "acl", "super.users": "User:ANONYMOUS"}
PATTERN = re.compile(
    r"Current ACLs for resource `ResourcePattern\(resourceType=(\w+), name=([^,]+), patternType=(\w+)\)`: ?\n"
    r"((?: ?\t.*\n)*)"
)
ENTRY = re.compile(r"\(principal=([^,]+), host=([^,]+), operation=(\w+), permissionType=(\w+)\)")

Row = tuple[str, ...]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server with ACLs."""
    process = KwireProcess(tmp_path_factory.mktemp("acls"), settings=SETTINGS)
    process.start()
    try:
        process.ready()
        yield process
        assert process.stop() == 0
    finally:
        process.kill()


@pytest.fixture
def guarded(process: KwireProcess) -> Iterator[KwireProcess]:
    """A server that has no ACLs when a test begins."""
    yield process
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    for future in admin.delete_acls([everything()]).values():
        future.result(DEADLINE_S)


class AclTool:
    """kafka-acls on one server."""

    def __init__(self, java: JavaTools, bootstrap: str) -> None:
        self._java = java
        self.server = ("--bootstrap-server", bootstrap)

    def add(self, *arguments: str) -> None:
        assert "Adding ACLs for resource" in self._java.run(ACLS, *self.server, "--add", *arguments)

    def remove(self, *arguments: str) -> None:
        self._java.run(ACLS, *self.server, "--remove", "--force", *arguments)

    def listed(self, *arguments: str) -> set[Row]:
        said = self._java.run(ACLS, *self.server, "--list", *arguments)
        return {
            (kind, name, pattern, *entry)
            for kind, name, pattern, entries in PATTERN.findall(said)
            for entry in ENTRY.findall(entries)
        }


@pytest.fixture
def tool(java: JavaTools, guarded: KwireProcess) -> AclTool:
    return AclTool(java, guarded.bootstrap)


def row(kind: str, name: str, pattern: str, principal: str, operation: str, *, deny: bool = False) -> Row:
    return kind, name, pattern, principal, "*", operation, "DENY" if deny else "ALLOW"


@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_acl_tool_adds_lists_and_removes(tool: AclTool) -> None:
    assert tool.listed() == set()
    tool.add("--allow-principal", "User:alice", "--operation", "Read", "--operation", "Write", "--topic", "orders")
    prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
    tool.add("--allow-principal", "User:bob", "--allow-host", "10.0.0.1", "--operation", "All", *prefixed)
    tool.add("--deny-principal", "User:*", "--operation", "Delete", "--topic", "*")
    tool.add("--allow-principal", "User:carol", "--operation", "Alter", "--cluster")
    alice = {row("TOPIC", "orders", "LITERAL", "User:alice", one) for one in ("READ", "WRITE")}
    bob = ("TOPIC", "ord", "PREFIXED", "User:bob", "10.0.0.1", "ALL", "ALLOW")
    everybody = row("TOPIC", "*", "LITERAL", "User:*", "DELETE", deny=True)
    carol = row("CLUSTER", "kafka-cluster", "LITERAL", "User:carol", "ALTER")
    assert tool.listed() == {*alice, bob, everybody, carol}
    # By default the tool lists literal ACLs of exactly this name.
    assert tool.listed("--topic", "orders") == alice
    assert tool.listed("--topic", "orders", "--resource-pattern-type", "match") == {*alice, bob, everybody}
    assert tool.listed("--topic", "ord", "--resource-pattern-type", "any") == {bob}
    assert tool.listed("--cluster", "--principal", "User:carol") == {carol}
    tool.remove("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert tool.listed("--topic", "orders") == {row("TOPIC", "orders", "LITERAL", "User:alice", "WRITE")}
    tool.remove("--topic", "orders", "--resource-pattern-type", "match")
    assert tool.listed() == {carol}
    tool.remove("--cluster")
    assert tool.listed() == set()


@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_acl_tool_adds_the_acls_of_producers_and_consumers(tool: AclTool) -> None:
    writer, reader = ("--allow-principal", "User:writer"), ("--allow-principal", "User:reader")
    tool.add(*writer, "--producer", "--idempotent", "--topic", "t", "--transactional-id", "tx")
    tool.add(*reader, "--consumer", "--topic", "t", "--group", "g")
    produces = {
        *(row("TOPIC", "t", "LITERAL", "User:writer", one) for one in ("WRITE", "DESCRIBE", "CREATE")),
        *(row("TRANSACTIONAL_ID", "tx", "LITERAL", "User:writer", one) for one in ("WRITE", "DESCRIBE")),
        row("CLUSTER", "kafka-cluster", "LITERAL", "User:writer", "IDEMPOTENT_WRITE"),
    }
    consumes = {
        *(row("TOPIC", "t", "LITERAL", "User:reader", one) for one in ("READ", "DESCRIBE")),
        row("GROUP", "g", "LITERAL", "User:reader", "READ"),
    }
    assert tool.listed() == produces | consumes
    assert tool.listed("--principal", "User:reader") == consumes
    tool.remove(*writer, "--producer", "--idempotent", "--topic", "t", "--transactional-id", "tx")
    assert tool.listed() == consumes
    tool.remove(*reader, "--consumer", "--topic", "t", "--group", "g")
    assert tool.listed() == set()


@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_acl_tool_says_that_there_is_no_authorizer(broker: Broker, java: JavaTools) -> None:
    said = java.refused(ACLS, "--bootstrap-server", broker.bootstrap, "--list")
    assert "SecurityDisabledException: No Authorizer is configured on the broker." in said


# --- confluent-kafka


def rows_of(bindings: Any) -> set[Row]:
    return {
        (
            one.restype.name,
            one.name,
            one.resource_pattern_type.name,
            one.principal,
            one.host,
            one.operation.name,
            one.permission_type.name,
        )
        for one in bindings
    }


def everything(name: str | None = None, pattern: ResourcePatternType = ResourcePatternType.ANY) -> AclBindingFilter:
    return AclBindingFilter(ResourceType.ANY, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)


def test_confluent_kafka_creates_describes_and_deletes_acls(guarded: KwireProcess) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    literal = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*")
    prefixed = (ResourceType.GROUP, "ord", ResourcePatternType.PREFIXED, "User:*", "10.0.0.1")
    bindings = [
        AclBinding(*literal, AclOperation.READ, AclPermissionType.ALLOW),
        AclBinding(*literal, AclOperation.WRITE, AclPermissionType.DENY),
        AclBinding(*prefixed, AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    for future in admin.create_acls(bindings).values():
        future.result(DEADLINE_S)
    assert rows_of(admin.describe_acls(everything()).result(DEADLINE_S)) == rows_of(bindings)
    matching = everything("orders", ResourcePatternType.MATCH)
    assert rows_of(admin.describe_acls(matching).result(DEADLINE_S)) == rows_of(bindings)
    by_name = everything("orders", ResourcePatternType.LITERAL)
    (removed,) = admin.delete_acls([by_name]).values()
    assert rows_of(removed.result(DEADLINE_S)) == rows_of(bindings[:2])
    wrong = AclBinding(
        ResourceType.BROKER,
        "not-the-cluster",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (refused,) = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException, match="The only valid name for the CLUSTER resource is kafka-cluster"):
        refused.result(DEADLINE_S)
    (removed,) = admin.delete_acls([everything()]).values()
    assert rows_of(removed.result(DEADLINE_S)) == rows_of(bindings[2:])


# --- kafka-python


def test_kafka_python_creates_describes_and_deletes_acls(guarded: KwireProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=guarded.bootstrap)
    try:
        acls = [
            ACL(
                "User:alice",
                "*",
                operation,
                ACLPermissionType.ALLOW,
                ResourcePattern(PythonResourceType.TOPIC, name, pattern),
            )
            for operation, name, pattern in (
                (ACLOperation.READ, "orders", ACLResourcePatternType.LITERAL),
                (ACLOperation.WRITE, "ord", ACLResourcePatternType.PREFIXED),
            )
        ]
        created = admin.create_acls(acls)
        assert (set(created["succeeded"]), created["failed"]) == (set(acls), [])

        def filtered(name: str | None, pattern: ACLResourcePatternType) -> ACLFilter:
            resource = ResourcePatternFilter(PythonResourceType.ANY, name, pattern)
            return ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)

        found, error = admin.describe_acls(filtered("orders", ACLResourcePatternType.MATCH))
        assert (set(found), error) == (set(acls), NoError)
        ((_, removed, error),) = admin.delete_acls([filtered("ord", ACLResourcePatternType.ANY)])
        assert (list(removed), error) == ([acls[1]], NoError)
        ((_, removed, error),) = admin.delete_acls([filtered(None, ACLResourcePatternType.ANY)])
        assert (list(removed), error) == ([acls[0]], NoError)
    finally:
        admin.close()


def test_kafka_python_learns_that_there_is_no_authorizer(broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        resource = ResourcePatternFilter(PythonResourceType.ANY, None, ACLResourcePatternType.ANY)
        with pytest.raises(SecurityDisabledError):
            admin.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource))
    finally:
        admin.close()
