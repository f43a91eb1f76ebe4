"""The index of ACLs decides as Kafka's rule says. A plain twin gets the same questions; names and prefixes overlap."""

import random

import pytest

from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.acl_index import AclIndex
from kwire.access.principal import Principal
from tests.end_to_end.seeds import announced_seed
from tests.support import acl_twin
from tests.support.effort import repetitions

ALICE = Principal("User", "alice")
HERE, THERE = "10.0.0.1", "10.0.0.2"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    name: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    pattern_type: PatternType = LITERAL,
    principal: Principal = ALICE,
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, operation, permission)


def index_of(*acls: Acl) -> AclIndex:
    index = AclIndex()
    for one in acls:
        index.add(one)
    return index


def decides(index: AclIndex, operation: Operation, name: str, host: str = HERE) -> bool | None:
    return index.decision(ALICE, host, operation, TOPIC, name)


def test_nothing_is_decided_without_an_acl() -> None:
    assert decides(index_of(), Operation.READ, "t") is None
    assert decides(index_of(acl("other")), Operation.READ, "t") is None
    assert decides(index_of(acl("t", resource_type=GROUP)), Operation.READ, "t") is None


def test_acl_of_somebody_else_on_the_resource_decides_against() -> None:
    index = index_of(acl("t", principal=Principal("User", "bob")))
    assert decides(index, Operation.READ, "t") is False


def test_deny_wins_over_every_allow() -> None:
    allows = acl("*"), acl("t"), acl("t", pattern_type=PREFIXED), acl("t", Operation.ALL)
    for deny in (
        acl("*", Operation.READ, DENY),
        acl("t", Operation.ALL, DENY),
        acl("", Operation.READ, DENY, pattern_type=PREFIXED),
        acl("t", Operation.READ, DENY, principal=Principal("User", "*"), host=HERE),
    ):
        index = index_of(*allows, deny)
        assert decides(index, Operation.READ, "t") is False
        index.remove(deny)
        assert decides(index, Operation.READ, "t") is True


def test_operations_imply_others_when_allowed_but_not_when_denied() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert decides(index_of(acl("t", operation)), Operation.DESCRIBE, "t") is True
        index = index_of(acl("t", Operation.DESCRIBE), acl("t", operation, DENY))
        assert decides(index, Operation.DESCRIBE, "t") is True
        assert decides(index, operation, "t") is False
    assert decides(index_of(acl("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS, "t") is True
    assert decides(index_of(acl("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE, "t") is False
    assert decides(index_of(acl("t", Operation.DESCRIBE)), Operation.READ, "t") is False


def test_host_of_an_acl_is_compared() -> None:
    index = index_of(acl("t", host=THERE))
    assert decides(index, Operation.READ, "t", THERE) is True
    assert decides(index, Operation.READ, "t", HERE) is False


def test_wildcard_stands_for_all_principals_of_the_type_user_only() -> None:
    assert decides(index_of(acl("t", principal=Principal("User", "*"))), Operation.READ, "t") is True
    assert decides(index_of(acl("t", principal=Principal("Group", "*"))), Operation.READ, "t") is False
    assert decides(index_of(acl("t", principal=Principal("User", "alic"))), Operation.READ, "t") is False


def test_prefix_covers_names_that_begin_with_it_and_a_prefixed_star_is_no_wildcard() -> None:
    index = index_of(acl("ab", pattern_type=PREFIXED), acl("*", Operation.WRITE, pattern_type=PREFIXED))
    assert [decides(index, Operation.READ, name) for name in ("a", "ab", "abc", "bab")] == [None, True, True, None]
    assert [decides(index, Operation.WRITE, name) for name in ("a", "*", "*a")] == [None, True, True]


def test_same_acl_is_added_and_removed_once() -> None:
    index = index_of(acl("t"), acl("t"), acl("t", Operation.WRITE))
    assert len(index) == 2
    index.remove(acl("t"))
    index.remove(acl("t"))
    assert list(index) == [acl("t", Operation.WRITE)]
    assert acl("t") not in index
    assert decides(index, Operation.READ, "t") is False
    index.remove(acl("t", Operation.WRITE))
    assert decides(index, Operation.READ, "t") is None


ANY_CASES = [
    ([], False),
    ([acl("t", Operation.WRITE)], True),
    ([acl("t", Operation.ALL, pattern_type=PREFIXED)], True),
    ([acl("t", Operation.READ)], False),
    ([acl("t", Operation.WRITE, resource_type=GROUP)], False),
    # A wildcard DENY covers everything.
    ([acl("t", Operation.WRITE), acl("*", Operation.ALL, DENY)], False),
    ([acl("t", Operation.WRITE), acl("*", Operation.ALL, DENY, host=THERE)], True),
    # Literal ones: the same name, or a prefix of it.
    ([acl("t", Operation.WRITE), acl("t", Operation.WRITE, DENY)], False),
    ([acl("tt", Operation.WRITE), acl("t", Operation.WRITE, DENY, pattern_type=PREFIXED)], False),
    ([acl("t", Operation.WRITE), acl("tt", Operation.WRITE, DENY, pattern_type=PREFIXED)], True),
    # Prefixed ones: only a prefix of the prefix.
    ([acl("t", Operation.WRITE, pattern_type=PREFIXED), acl("t", Operation.WRITE, DENY)], True),
    (
        [
            acl("t", Operation.WRITE, pattern_type=PREFIXED),
            acl("t", Operation.WRITE, DENY, pattern_type=PREFIXED),
        ],
        False,
    ),
    # No prefix is as wide as the wildcard.
    ([acl("*", Operation.WRITE), acl("*", Operation.WRITE, DENY, pattern_type=PREFIXED)], True),
    # One that is denied does not hide one that is not.
    ([acl("t", Operation.WRITE), acl("t", Operation.ALL, DENY), acl("u", Operation.WRITE)], True),
]


@pytest.mark.parametrize(("acls", "expected"), ANY_CASES, ids=range(len(ANY_CASES)))
def test_operation_is_allowed_on_some_resource(acls: list[Acl], expected: bool) -> None:
    assert index_of(*acls).allows_any(ALICE, HERE, Operation.WRITE, TOPIC) is expected


def test_implied_operations_do_not_count_for_some_resource() -> None:
    assert not index_of(acl("t", Operation.READ)).allows_any(ALICE, HERE, Operation.DESCRIBE, TOPIC)


def test_index_decides_as_the_plain_rule() -> None:
    """ACLs come and go one by one; in between the index and a list of the same ACLs are asked the same questions."""
    chance = random.Random(announced_seed())
    answers: dict[object, int] = {}
    for _ in range(repetitions(quick=150, full=1_500)):
        index, acls = AclIndex(), list[Acl]()
        for _ in range(chance.choice((1, 3, 10, 40))):
            one = acl_twin.random_acl(chance)
            index.add(one)
            acls = [*(other for other in acls if other != one), one]
            if chance.random() < 0.3:
                gone = acls.pop(chance.randrange(len(acls)))
                index.remove(gone)
            assert sorted(index) == sorted(acls)
            for _ in range(5):
                who, where = chance.choice(acl_twin.PRINCIPALS), chance.choice(acl_twin.HOSTS[1:])
                what, kind = chance.choice(acl_twin.OPERATIONS), chance.choice(acl_twin.RESOURCE_TYPES)
                name = chance.choice(acl_twin.ASKED_NAMES)
                expected = acl_twin.decide(acls, who, where, what, kind, name)
                answers["decision", expected] = answers.get(("decision", expected), 0) + 1
                assert index.decision(who, where, what, kind, name) is expected, (acls, who, where, what, kind, name)
            expected = acl_twin.allows_any(acls, who, where, what, kind)
            answers["any", expected] = answers.get(("any", expected), 0) + 1
            assert index.allows_any(who, where, what, kind) is expected, (acls, who, where, what, kind)
        for one in acls:
            index.remove(one)
        assert (len(index), index._rules, index._counts.is_empty) == (0, {}, True)
        # Else each decision would try lengths that no prefix has.
        assert not any(index._counts._lengths.values())
    print(answers)
    # Every answer was given often enough to mean something.
    assert len(answers) == 5
    assert min(answers.values()) > 50
