"""Names of scopes: reversible, without collisions (S1-5, S1-6, C-50)."""

import random

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.access.principal import KEY, Principal
from kwire.access.scope import ID_CHARACTERS, ID_LENGTH, PREFIX_LENGTH, Scope, new_scope_id, prefix_of
from kwire.access.scoped_access import ScopedAccess

A, B = Scope("entity-123", "a" * ID_LENGTH), Scope("entity-123:user", "b" * ID_LENGTH)


def test_full_names_of_different_scopes_and_names_never_collide() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    alphabet = "ab:._-" + ID_CHARACTERS[:4] + "kws"
    scopes = [Scope(str(number), "".join(chance.choices(ID_CHARACTERS[:3], k=ID_LENGTH))) for number in range(50)]
    seen: dict[str, tuple[str, str]] = {}
    for _ in range(20_000):
        scope = chance.choice(scopes)
        plain = "".join(chance.choices(alphabet, k=chance.randrange(0, 30)))
        if chance.random() < 0.2:
            plain = chance.choice(scopes).full_name(plain)
        full = scope.full_name(plain)
        assert seen.setdefault(full, (scope.id, plain)) == (scope.id, plain)
        assert scope.plain_name(full) == plain
        assert prefix_of(full) == scope.prefix
        for other in chance.sample(scopes, 3):
            if other.id != scope.id:
                assert other.plain_name(full) is None


def test_colons_do_not_move_between_scope_and_name() -> None:
    assert A.full_name("user:updates") != B.full_name("updates")


def test_prefix_has_a_fixed_length_and_legal_characters() -> None:
    scope = Scope("any name, even one with spaces", new_scope_id())
    assert len(scope.prefix) == PREFIX_LENGTH == 16
    assert prefix_of(scope.full_name("orders")) == scope.prefix
    assert prefix_of("orders") == prefix_of("kws-short.orders") == ""


def test_messages_show_plain_names() -> None:
    assert A.hide_in(f"Topic '{A.full_name('orders')}' is unknown") == "Topic 'orders' is unknown"


def test_scoped_access_reaches_nothing_outside_of_its_scope() -> None:
    access = ScopedAccess(Principal(KEY, "k"), "127.0.0.1", A)
    for resource_type in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        assert access.allows(Operation.WRITE, resource_type, A.full_name("x"))
        assert not access.allows(Operation.WRITE, resource_type, B.full_name("x"))
        assert not access.allows(Operation.DESCRIBE, resource_type, "x")
    assert access.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    for operation in (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION):
        assert not access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    assert not access.allows_any(Operation.DESCRIBE, ResourceType.USER)
