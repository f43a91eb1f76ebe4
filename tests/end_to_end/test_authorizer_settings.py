"""kwire.authorizer, super.users and allow.everyone.if.no.acl.found on a server process, and what of it can be changed.

Every client here is User:ANONYMOUS. DescribeAcls needs the right to describe the cluster, CreateAcls to alter it.
confluent-kafka returns an empty list if DescribeAcls is refused, so kafka-python makes this call.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePatternFilter
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import ClusterAuthorizationFailedError

from kwire.testing import ServerFailed
from tests.support.clients import DEADLINE_S
from tests.support.server import KwireProcess

ALL_ACLS = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(PythonResourceType.ANY, None, ACLResourcePatternType.ANY),
)


class Client:
    """User:ANONYMOUS, and whether it may see and change ACLs."""

    def __init__(self, process: KwireProcess) -> None:
        self._bootstrap = process.bootstrap
        self._admin = AdminClient({"bootstrap.servers": process.bootstrap})

    def acls(self) -> set[tuple[str, str, str]]:
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            found, _ = admin.describe_acls(ALL_ACLS)
        finally:
            admin.close()
        return {(one.principal, one.operation.name, one.permission_type.name) for one in found}

    def grant(self, principal: str, operation: AclOperation, *, deny: bool = False) -> None:
        """Add an ACL about the cluster."""
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        cluster = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
        (done,) = self._admin.create_acls([AclBinding(*cluster, principal, "*", operation, permission)]).values()
        done.result(DEADLINE_S)

    def alter(self, name: str, value: str) -> None:
        resource = ConfigResource(
            ConfigResource.Type.BROKER,
            "1",
            incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
        )
        (done,) = self._admin.incremental_alter_configs([resource]).values()
        done.result(DEADLINE_S)


def code_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        call(*arguments, **options)
    code: int = refused.value.args[0].code()
    return code


def assert_nothing_is_allowed(client: Client) -> None:
    with pytest.raises(ClusterAuthorizationFailedError):
        client.acls()
    assert code_of(client.grant, "User:ANONYMOUS", AclOperation.ALL) == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_rights_survive_restarts_and_super_users_need_none(start_kwire: Callable[..., KwireProcess]) -> None:
    process = start_kwire(settings={"kwire.authorizer": "acl", "super.users": "User:admin;User:ANONYMOUS"})
    client = Client(process)
    # A super user may do everything, whatever is denied.
    client.grant("User:ANONYMOUS", AclOperation.ALL, deny=True)
    client.grant("User:other", AclOperation.ALL)
    expected = {("User:ANONYMOUS", "ALL", "DENY"), ("User:other", "ALL", "ALLOW")}
    assert client.acls() == expected
    process.kill()
    process.restart()
    assert Client(process).acls() == expected
    # The same ACLs without the super user.
    process.stop()
    process.settings["super.users"] = "User:admin"
    process.restart()
    assert_nothing_is_allowed(Client(process))


def test_nothing_is_allowed_by_default(start_kwire: Callable[..., KwireProcess]) -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert_nothing_is_allowed(Client(start_kwire(settings={"authorizer.class.name": name})))


def test_resources_without_acls_can_be_open(start_kwire: Callable[..., KwireProcess]) -> None:
    client = Client(start_kwire(settings={"kwire.authorizer": "acl", "allow.everyone.if.no.acl.found": "true"}))
    assert client.acls() == set()
    # The first ACL of the cluster ends that: now only what is allowed is allowed.
    client.grant("User:ANONYMOUS", AclOperation.DESCRIBE)
    assert client.acls() == {("User:ANONYMOUS", "DESCRIBE", "ALLOW")}
    assert code_of(client.grant, "User:ANONYMOUS", AclOperation.ALTER) == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_settings_of_the_authorizer_cannot_be_changed_while_the_server_runs(
    start_kwire: Callable[..., KwireProcess],
) -> None:
    client = Client(start_kwire(settings={"kwire.authorizer": "acl", "super.users": "User:ANONYMOUS"}))
    for name, value in (
        ("super.users", "User:eve"),
        ("allow.everyone.if.no.acl.found", "true"),
        ("kwire.authorizer", "none"),
        ("authorizer.class.name", ""),
    ):
        with pytest.raises(KafkaException, match="Cannot update these configs dynamically") as refused:
            client.alter(name, value)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_wrong_super_user_stops_the_start(start_kwire: Callable[..., KwireProcess]) -> None:
    with pytest.raises(ServerFailed) as failed:
        start_kwire(settings={"kwire.authorizer": "acl", "super.users": "alice"})
    assert "super.users" in str(failed.value)
    assert "Expected User:NAME" in str(failed.value)
