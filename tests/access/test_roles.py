"""Roles are sets of ACLs: what each of them allows and does not allow, and how they are found again."""

import re
from pathlib import Path

import pytest

from kwire.access.acl import CLUSTER_NAME, OPERATIONS, Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.acl_index import AclIndex
from kwire.access.principal import Principal
from kwire.access.roles import PREFIXED_ROLES, ROLE_OPERATIONS, Role, RoleGrant, acls_of_role, roles_of

ALICE = Principal("User", "alice")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
_O, _T = Operation, ResourceType


def allowed(role: Role, resource_type: ResourceType, name: str, prefix: str = "*") -> set[Operation]:
    index = AclIndex()
    for acl in acls_of_role(role, ALICE, prefix):
        index.add(acl)
    return {one for one in OPERATIONS[resource_type] if index.decision(ALICE, "10.0.0.1", one, resource_type, name)}


def test_admin_may_do_everything() -> None:
    for resource_type, operations in OPERATIONS.items():
        name = CLUSTER_NAME if resource_type is _T.CLUSTER else "x"
        assert allowed(Role.ADMIN, resource_type, name) == set(operations)


def test_operator_may_change_everything_but_neither_read_nor_write_records_nor_change_rights() -> None:
    assert allowed(Role.OPERATOR, _T.TOPIC, "t") == set(OPERATIONS[_T.TOPIC]) - {_O.READ, _O.WRITE}
    assert allowed(Role.OPERATOR, _T.GROUP, "g") == set(OPERATIONS[_T.GROUP])
    assert allowed(Role.OPERATOR, _T.TRANSACTIONAL_ID, "x") == {_O.DESCRIBE}
    assert allowed(Role.OPERATOR, _T.CLUSTER, CLUSTER_NAME) == {
        _O.CREATE,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    }


def test_writer_may_write_and_create_topics_and_use_transactions() -> None:
    for prefix, name in (("*", "any"), ("team-", "team-orders")):
        assert allowed(Role.WRITER, _T.TOPIC, name, prefix) == {_O.WRITE, _O.CREATE, _O.DESCRIBE}
        assert allowed(Role.WRITER, _T.TRANSACTIONAL_ID, name, prefix) == {_O.WRITE, _O.DESCRIBE}
        assert allowed(Role.WRITER, _T.CLUSTER, CLUSTER_NAME, prefix) == {_O.IDEMPOTENT_WRITE}
        assert allowed(Role.WRITER, _T.GROUP, name, prefix) == set()
    assert allowed(Role.WRITER, _T.TOPIC, "other", "team-") == set()


def test_reader_may_read_topics_and_use_groups() -> None:
    for prefix, name in (("*", "any"), ("team-", "team-orders")):
        assert allowed(Role.READER, _T.TOPIC, name, prefix) == {_O.READ, _O.DESCRIBE}
        assert allowed(Role.READER, _T.GROUP, name, prefix) == {_O.READ, _O.DESCRIBE}
        assert allowed(Role.READER, _T.CLUSTER, CLUSTER_NAME, prefix) == set()
    assert allowed(Role.READER, _T.TOPIC, "tea", "team-") == set()


@pytest.mark.parametrize("role", Role)
def test_a_role_is_found_again_in_its_acls(role: Role) -> None:
    for prefix in ("*", "team-") if role in PREFIXED_ROLES else ("*",):
        acls = acls_of_role(role, ALICE, prefix)
        assert roles_of(acls) == ((RoleGrant(role, prefix),), ())
        # Without one of its ACLs it is no role.
        for number in range(len(acls)):
            rest = acls[:number] + acls[number + 1 :]
            assert roles_of(rest) == ((), tuple(rest))


def test_several_roles_and_acls_that_belong_to_none() -> None:
    deny = Acl(_T.TOPIC, "secret", PatternType.LITERAL, ALICE, "*", _O.ALL, Permission.DENY)
    acls = [*acls_of_role(Role.READER, ALICE, "a-"), deny, *acls_of_role(Role.WRITER, ALICE, "b-")]
    grants, others = roles_of(acls + acls)
    assert grants == (RoleGrant(Role.WRITER, "b-"), RoleGrant(Role.READER, "a-"))
    assert others == (deny,)
    assert roles_of([]) == ((), ())


def test_wrong_uses_are_refused() -> None:
    for role in set(Role) - PREFIXED_ROLES:
        with pytest.raises(ValueError, match="about the whole cluster"):
            acls_of_role(role, ALICE, "team-")
    with pytest.raises(ValueError, match="the prefix must not be empty"):
        acls_of_role(Role.READER, ALICE, "")
    with pytest.raises(ValueError, match="at most 1024"):
        acls_of_role(Role.READER, ALICE, "n" * 1025)
    with pytest.raises(ValueError, match="User:alice, User:bob"):
        roles_of([*acls_of_role(Role.READER, ALICE), *acls_of_role(Role.READER, Principal("User", "bob"))])


def test_the_page_has_the_acls_of_each_role() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([A-Z_, ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told: dict[str, dict[str, list[str]]] = {}
    for role, resource_type, operations in rows:
        told.setdefault(role, {})[resource_type] = operations.split(", ")
    assert told == {
        role.value: {kind.name: [one.name for one in operations] for kind, operations in by_type.items()}
        for role, by_type in ROLE_OPERATIONS.items()
    }
