"""ACLs in requests and responses, as tuples: type, name, pattern, principal, host, operation, permission."""

from typing import Any

from kwire.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kwire.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

UNKNOWN, ANY, MATCH = 0, 1, 2
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, ALTER, DESCRIBE = 2, 3, 4, 7, 8
DENY, ALLOW = 2, 3

Row = tuple[int, str, int, str, str, int, int]


def row(
    name: str = "t",
    operation: int = READ,
    permission: int = ALLOW,
    *,
    resource_type: int = TOPIC,
    pattern_type: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> Row:
    return resource_type, name, pattern_type, principal, host, operation, permission


def creation(*rows: Row) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=one[0],
                resource_name=one[1],
                resource_pattern_type=one[2],
                principal=one[3],
                host=one[4],
                operation=one[5],
                permission_type=one[6],
            )
            for one in rows
        ]
    )


def _filter(
    name: str | None = None,
    *,
    resource_type: int = ANY,
    pattern_type: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission_type: int = ANY,
) -> dict[str, Any]:
    return {
        "resource_type_filter": resource_type,
        "resource_name_filter": name,
        "pattern_type_filter": pattern_type,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission_type,
    }


def description(name: str | None = None, **more: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**_filter(name, **more))


def one_filter(name: str | None = None, **more: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(**_filter(name, **more))


def deletion(*filters: DeleteAclsFilter) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=list(filters))


def described(answer: DescribeAclsResponse) -> list[Row]:
    """The ACLs of an answer, in order of their values."""
    return sorted(
        (
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for one in answer.resources
        for acl in one.acls
    )
