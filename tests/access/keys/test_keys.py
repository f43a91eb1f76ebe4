"""Keys: created, rotated with an overlap, expired, revoked, loaded again."""

import asyncio
import os
import random
from typing import Any

import pytest

from kwire.access.access import Unrestricted
from kwire.access.acl import Operation, ResourceType
from kwire.access.authorizer import AclAuthorizer, Authorizer, OpenAuthorizer
from kwire.access.keys import keys as keys_module
from kwire.access.keys.key import IsAlias, IssuedKey, KeyLimits, KeyNotFound, NewKey, TooManyKeys
from kwire.access.keys.key_format import Credentials, new_key_id, new_secret
from kwire.access.keys.keys import ALIASES_MAX, TICK_SECONDS, USES_STORED_SECONDS, Keys
from kwire.access.keys.scopes import Scopes
from kwire.access.principal import Principal
from kwire.access.scope import PREFIX_LENGTH
from tests.support.effort import repetitions
from tests.support.keys import KeyStore
from tests.support.node import in_loop

ACME = NewKey(scope="acme")


def logs_in(keys: Keys, credentials: Credentials) -> bool:
    return keys.log_in(credentials) is not None


@in_loop
async def test_a_key_logs_in_with_its_secret_only(store: KeyStore) -> None:
    keys = store.open()
    one, other = await keys.create(ACME), await keys.create(ACME)
    login = keys.log_in(one.credentials)
    assert login is not None
    assert login.principal == one.key.principal == Principal("Key", one.key.id)
    assert keys.log_in(one.credentials) is login, "all clients with a secret share a login"
    for wrong in (
        Credentials(one.key.id, other.credentials.secret),
        Credentials(one.key.id, new_secret()),
        Credentials(one.key.id, ""),
        Credentials(new_key_id(), one.credentials.secret),
        Credentials("", ""),
    ):
        assert not logs_in(keys, wrong)


@in_loop
async def test_only_hashes_are_stored_and_keys_are_loaded_again(store: KeyStore) -> None:
    keys = store.open()
    limits = KeyLimits(max_events=10, max_subscriptions=0, publish_rate=3)
    expires_ms = store.clock.now_ms() + 5_000
    new = NewKey(scope="acme", limits=limits, expires_ms=expires_ms, description="for tests")
    issued = [await keys.create(new), await keys.create(NewKey(is_root=True)), await keys.create(ACME)]
    issued.append(await keys.create(NewKey(alias_of=issued[0].key.id)))
    before = list(keys)
    rotated = await keys.rotate(issued[2].key.id, 60)
    stored = store.path.read_bytes()
    for one in (*issued, rotated):
        assert one.credentials.secret.encode() not in stored
        assert one.credentials.secret[4:].encode() not in stored
    again = store.open()
    assert {key.id for key in again} == {key.id for key in before}
    for one in issued[:2]:
        assert again.get(one.key.id) == one.key
    alias = again.get(issued[3].key.id)
    assert alias is not None
    assert (alias.limits, alias.scope, alias.usage_id) == (limits, issued[0].key.scope, issued[0].key.id)
    assert all(logs_in(again, one.credentials) for one in (*issued, rotated))
    assert [key.id for key in again.page("", 2)] == sorted(key.id for key in before)[:2]
    assert [key.id for key in again.page(sorted(key.id for key in before)[1], 9)] == sorted(k.id for k in before)[2:]


@in_loop
async def test_rotation_keeps_two_secrets_until_the_overlap_ends(store: KeyStore) -> None:
    keys = store.open()
    first = await keys.create(ACME)
    old_login = keys.log_in(first.credentials)
    second = await keys.rotate(first.key.id, overlap_seconds=60)
    new_login = keys.log_in(second.credentials)
    assert old_login is not None
    assert new_login is not None
    assert keys.log_in(first.credentials) is old_login
    changed: list[frozenset[str]] = []
    keys.listen(changed.append)
    store.clock.advance(59_999)
    assert keys.end_expired() == 0
    assert logs_in(keys, first.credentials)
    store.clock.advance(1)
    assert not logs_in(keys, first.credentials), "before the timer has run, too"
    assert keys.end_expired() == 1
    assert (old_login.is_valid(), new_login.is_valid()) == (False, True)
    assert changed == [{first.key.id}]
    assert logs_in(keys, second.credentials)
    # A second rotation within the overlap: the oldest secret ends.
    third = await keys.rotate(first.key.id, 60)
    fourth = await keys.rotate(first.key.id, 60)
    assert [logs_in(keys, one.credentials) for one in (second, third, fourth)] == [False, True, True]
    assert not new_login.is_valid()
    fifth = await keys.rotate(first.key.id, 0)
    assert [logs_in(keys, one.credentials) for one in (third, fourth, fifth)] == [False, False, True]


@in_loop
async def test_an_expired_key_ends_its_logins_and_those_of_its_aliases(store: KeyStore) -> None:
    keys = store.open()
    main = await keys.create(NewKey(scope="acme", expires_ms=store.clock.now_ms() + 1_000))
    alias = await keys.create(NewKey(alias_of=main.key.id))
    logins = [keys.log_in(one.credentials) for one in (main, alias)]
    changed: list[frozenset[str]] = []
    keys.listen(changed.append)
    store.clock.advance(1_000)
    assert not logs_in(keys, main.credentials)
    assert not logs_in(keys, alias.credentials)
    keys.end_expired()
    assert [login is not None and login.is_valid() for login in logins] == [False, False]
    assert changed == [{main.key.id, alias.key.id}]
    assert keys.valid(main.key.id) is None
    assert keys.get(main.key.id) is not None


@in_loop
async def test_a_clock_that_was_set_back_does_not_make_a_login_last_for_ever(store: KeyStore) -> None:
    keys = store.open()
    issued = await keys.create(NewKey(scope="acme", expires_ms=store.clock.now_ms() + 1_000))
    start_ms = store.clock.now_ms()
    store.clock.set_wall(start_ms + 5_000)
    keys.end_expired()
    store.clock.set_wall(start_ms)
    login = keys.log_in(issued.credentials)
    assert login is not None
    store.clock.set_wall(start_ms + 1_000)
    keys.end_expired()
    assert not login.is_valid()


@in_loop
async def test_the_timer_ends_expired_logins(store: KeyStore) -> None:
    keys = store.open()
    scheduled: list[tuple[float, Any]] = []

    def call_later(seconds: float, callback: Any) -> Any:
        scheduled.append((seconds, callback))
        return asyncio.get_running_loop().call_later(3600, callback)

    keys.start(call_later)
    assert scheduled == [], "without keys there is no timer"
    issued = await keys.create(NewKey(scope="acme", expires_ms=store.clock.now_ms() + 1_000))
    login = keys.log_in(issued.credentials)
    assert login is not None
    ((seconds, tick),) = scheduled
    assert seconds == TICK_SECONDS <= 1.0
    store.clock.advance(1_000)
    tick()
    assert not login.is_valid()
    assert len(scheduled) == 2
    await keys.close()


@in_loop
async def test_a_revoked_key_is_gone_with_its_aliases_and_an_alias_alone(store: KeyStore) -> None:
    keys = store.open()
    main = await keys.create(ACME)
    aliases = [await keys.create(NewKey(alias_of=main.key.id)) for _ in range(3)]
    logins = [keys.log_in(one.credentials) for one in (main, *aliases)]
    changed: list[frozenset[str]] = []
    keys.listen(changed.append)
    assert await keys.revoke(aliases[0].key.id) == {aliases[0].key.id}
    assert [login is not None and login.is_valid() for login in logins] == [True, False, True, True]
    assert [logs_in(keys, one.credentials) for one in (main, *aliases)] == [True, False, True, True]
    gone = await keys.revoke(main.key.id)
    assert gone == {one.key.id for one in (main, *aliases[1:])}
    assert not any(login is not None and login.is_valid() for login in logins)
    assert changed == [{aliases[0].key.id}, gone]
    assert len(keys) == 0
    for call in (keys.revoke(main.key.id), keys.rotate(main.key.id), keys.create(NewKey(alias_of=main.key.id))):
        with pytest.raises(KeyNotFound):
            await call
    assert len(store.open()) == 0


@in_loop
async def test_limits_are_changed_for_aliases_too(store: KeyStore) -> None:
    keys = store.open()
    main = await keys.create(NewKey(scope="acme", limits=KeyLimits(max_events=5, max_subscriptions=1)))
    alias = await keys.create(NewKey(alias_of=main.key.id))
    await keys.set_limits(main.key.id, {"max_events": 7, "max_subscriptions": None})
    for opened in (keys, store.open()):
        for key_id in (main.key.id, alias.key.id):
            found = opened.get(key_id)
            assert found is not None
            assert found.limits == KeyLimits(max_events=7)
    with pytest.raises(IsAlias, match=f"has the limits of {main.key.id}"):
        await keys.set_limits(alias.key.id, {"max_events": 1})


@in_loop
async def test_wrong_keys_are_refused(store: KeyStore) -> None:
    keys = store.open()
    now_ms = store.clock.now_ms()
    main = await keys.create(ACME)
    alias = await keys.create(NewKey(alias_of=main.key.id))
    wrong = {
        NewKey(): "needs a scope",
        NewKey(scope=""): "name of a scope",
        NewKey(scope="a b"): "name of a scope",
        NewKey(scope="x" * 101): "name of a scope",
        NewKey(scope="a", limits=KeyLimits(max_events=-1)): "max_events must be 0 or more",
        NewKey(scope="a", limits=KeyLimits(publish_rate=0)): "publish_rate must be 1 or more",
        NewKey(scope="a", expires_ms=now_ms): "in the future",
        NewKey(scope="a", description="x" * 201): "description",
        NewKey(scope="a", description="\n"): "description",
        NewKey(alias_of=main.key.id, scope="a"): "an alias has the scope",
    }
    for new, reason in wrong.items():
        with pytest.raises(ValueError, match=reason):
            await keys.create(new)
    with pytest.raises(IsAlias, match="is an alias itself"):
        await keys.create(NewKey(alias_of=alias.key.id))
    with pytest.raises(ValueError, match="overlap must be"):
        await keys.rotate(main.key.id, -1)
    assert len(keys) == 2


@in_loop
async def test_the_numbers_of_keys_and_aliases_are_bounded(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = store.open()
    main = await keys.create(ACME)
    for _ in range(ALIASES_MAX):
        await keys.create(NewKey(alias_of=main.key.id))
    with pytest.raises(TooManyKeys, match="40 aliases"):
        await keys.create(NewKey(alias_of=main.key.id))
    # One commit removes them all.
    assert len(await keys.revoke(main.key.id)) == ALIASES_MAX + 1 <= 100
    monkeypatch.setattr(keys_module, "KEYS_MAX", 1)
    await keys.create(ACME)
    with pytest.raises(TooManyKeys, match="at most 1 keys"):
        await keys.create(ACME)


@in_loop
async def test_the_last_use_is_stored_rarely_and_at_the_end(store: KeyStore) -> None:
    keys = store.open()
    issued = [await keys.create(ACME) for _ in range(3)]
    revision = store.metastore.revision
    keys.start(asyncio.get_running_loop().call_later)
    for _ in range(100):
        store.clock.advance(1_000)
        assert logs_in(keys, issued[0].credentials)
    used_ms = store.clock.now_ms()
    keys._tick()
    assert store.metastore.revision == revision, "a use is no commit"
    assert keys.last_used_ms(issued[0].key) == used_ms
    store.clock.advance(int(USES_STORED_SECONDS * 1000))
    keys._tick()
    assert keys._storing_uses is not None
    await keys._storing_uses
    assert store.metastore.revision == revision + 1
    store.clock.advance(1_000)
    assert logs_in(keys, issued[1].credentials)
    await keys.close()
    again = store.open()
    uses = [again.last_used_ms(key) for key in map(again.get, (one.key.id for one in issued)) if key is not None]
    assert uses == [used_ms, store.clock.now_ms(), 0]
    assert all(logs_in(again, one.credentials) for one in issued)


@in_loop
async def test_a_scope_has_one_random_id_for_ever(store: KeyStore) -> None:
    keys = store.open()
    a, b, again = [await keys.create(NewKey(scope=name)) for name in ("a:b", "a", "a:b")]
    assert a.key.scope == again.key.scope
    assert a.key.scope is not None
    assert b.key.scope is not None
    # S1-5, C-50: `a:b` + `c` differs from `a` + `b:c`.
    assert a.key.scope.full_name("c") != b.key.scope.full_name("b:c")
    assert len(a.key.scope.prefix) == len(b.key.scope.prefix) == PREFIX_LENGTH
    for key in (a, b, again):
        await keys.revoke(key.key.id)
    later = store.open()
    assert (await later.create(NewKey(scope="a:b"))).key.scope == a.key.scope, "its topics may still exist"
    assert later.scopes.with_id(b.key.scope.id) == b.key.scope


@in_loop
async def test_two_registries_of_one_store_never_give_two_ids_to_a_name_nor_two_names_an_id(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open()
    ids = iter(["aaaaaaaaaaa", "aaaaaaaaaaa", "bbbbbbbbbbb", "bbbbbbbbbbb", "ccccccccccc"])
    monkeypatch.setattr("kwire.access.keys.scopes.new_scope_id", lambda: next(ids))
    one, other = Scopes(store.metastore), Scopes(store.metastore)
    found = await asyncio.gather(one.ensure("x"), other.ensure("x"))
    assert {scope.id for scope in found} == {"aaaaaaaaaaa"}
    assert (await other.ensure("y")).id == "bbbbbbbbbbb"
    assert (await one.ensure("z")).id == "ccccccccccc"
    assert (await one.ensure("y")).id == "bbbbbbbbbbb"


@pytest.mark.parametrize("has_acls", [False, True])
@in_loop
async def test_the_authorizer_gives_keys_their_scope_and_nothing_else(store: KeyStore, has_acls: bool) -> None:
    keys = store.open()
    authorizer: Authorizer = AclAuthorizer(store.metastore, keys=keys) if has_acls else OpenAuthorizer(keys)
    scoped, root = await keys.create(ACME), await keys.create(NewKey(is_root=True, scope="own"))
    access = authorizer.access(scoped.key.principal, "10.0.0.1")
    assert access.scope == scoped.key.scope
    assert access.scope is not None
    assert not access.is_unrestricted
    read = (Operation.READ, ResourceType.TOPIC)
    assert access.allows(*read, access.scope.full_name("orders"))
    assert not access.allows(*read, "orders")
    assert not access.allows(Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    administrator = authorizer.access(root.key.principal, "10.0.0.1")
    assert (administrator.is_unrestricted, administrator.scope) == (True, None)
    assert administrator.principal == root.key.principal
    unknown = authorizer.access(Principal("Key", new_key_id()), "10.0.0.1")
    assert not unknown.allows(*read, access.scope.full_name("orders"))
    assert not unknown.allows_any(*read)
    user = authorizer.access(Principal("User", "alice"), "10.0.0.1")
    assert isinstance(user, Unrestricted) != has_acls
    revision = authorizer.revision
    await keys.revoke(scoped.key.id)
    assert authorizer.revision > revision, "open webhooks and streams of the key notice it"
    gone = authorizer.access(scoped.key.principal, "10.0.0.1")
    assert not gone.allows(*read, access.scope.full_name("orders"))
    assert gone.operations(ResourceType.TOPIC, access.scope.full_name("orders")) == 0


class Twin:
    """What keys should do, written naively: every secret with the time until which it is valid."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str | None, int | None]] = {}
        self.secrets: dict[Credentials, int | None] = {}

    def add(self, issued: IssuedKey, expires_ms: int | None) -> None:
        self.keys[issued.key.id] = (issued.key.alias_of, expires_ms)
        self.secrets[issued.credentials] = None

    def rotate(self, issued: IssuedKey, until_ms: int) -> None:
        for one in [one for one in self.secrets if one.id == issued.key.id]:
            self.secrets[one] = until_ms if self.secrets[one] is None else 0
        self.secrets[issued.credentials] = None

    def revoke(self, key_id: str) -> None:
        self.keys = {one: facts for one, facts in self.keys.items() if key_id not in (one, facts[0])}

    def is_valid(self, credentials: Credentials, now_ms: int) -> bool:
        until_ms = self.secrets[credentials]
        if credentials.id not in self.keys or (until_ms is not None and now_ms >= until_ms):
            return False
        alias_of, expires_ms = self.keys[credentials.id]
        ends = [expires_ms, None if alias_of is None else self.keys[alias_of][1]]
        return all(end is None or now_ms < end for end in ends)


@in_loop
async def test_random_changes_agree_with_a_naive_twin(store: KeyStore) -> None:
    seed = int(os.environ.get("KWIRE_TEST_SEED") or random.randrange(2**32))
    print(f"KWIRE_TEST_SEED={seed}")
    chance, keys, twin = random.Random(seed), store.open(), Twin()
    logins: list[tuple[Credentials, Any]] = []
    for _ in range(repetitions(quick=300, full=1_500)):
        now_ms = store.clock.now_ms()
        known = list(twin.keys)
        action = chance.choice(("create", "alias", "rotate", "revoke", "advance", "advance", "log in", "reopen"))
        if action == "create" or not known:
            expires_ms = chance.choice((None, now_ms + chance.randrange(1, 50)))
            scope = chance.choice("abc")
            twin.add(await keys.create(NewKey(scope=scope, expires_ms=expires_ms)), expires_ms)
        elif action == "alias":
            mains = [one for one in known if twin.keys[one][0] is None]
            expires_ms = chance.choice((None, now_ms + chance.randrange(1, 50)))
            issued = await keys.create(NewKey(alias_of=chance.choice(mains), expires_ms=expires_ms))
            twin.add(issued, expires_ms)
        elif action == "rotate":
            overlap_ms = chance.choice((0, chance.randrange(1, 50)))
            twin.rotate(await keys.rotate(chance.choice(known), overlap_ms / 1000), now_ms + overlap_ms)
        elif action == "revoke":
            revoked = chance.choice(known)
            await keys.revoke(revoked)
            twin.revoke(revoked)
        elif action == "advance":
            store.clock.advance(chance.randrange(20))
            keys.end_expired()
        elif action == "log in":
            credentials = chance.choice(list(twin.secrets))
            login = keys.log_in(credentials)
            if login is not None:
                logins.append((credentials, login))
        elif chance.random() < 0.2:
            keys, logins = store.open(), []
        now_ms = store.clock.now_ms()
        for credentials in twin.secrets:
            assert logs_in(keys, credentials) == twin.is_valid(credentials, now_ms), (seed, action)
        for credentials, login in logins:
            assert login.is_valid() == twin.is_valid(credentials, now_ms), (seed, action)
        assert {key.id for key in keys} == set(twin.keys)
        assert [key.id for key in keys.page("", len(keys))] == sorted(twin.keys)
