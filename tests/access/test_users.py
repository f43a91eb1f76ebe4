"""Users: their credentials are durable, their passwords are nowhere, and a change is noticed."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from kwire.access.audit.queue import AuditQueue
from kwire.access.users import passwords as password_checks
from kwire.access.users import users as users_module
from kwire.access.users.scram_credential import ScramCredential, ScramMechanism, credential_of_salted, salted_password
from kwire.access.users.users import CredentialChange, UserExists, UserNotFound
from kwire.config.access import AuditConfig
from tests.support.clock import ManualClock
from tests.support.node import in_loop
from tests.support.users import UserStore

SECRET = "correct horse battery staple"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def salted_credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salt = b"salt of a client"
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


@in_loop
async def test_a_password_makes_a_credential_of_each_mechanism(store: UserStore) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    assert users.describe("alice") == {SHA_256: 4096, SHA_512: 4096}
    salts = {users.login_credential("alice", one).salt for one in ScramMechanism}
    assert len(salts) == 2
    assert all(len(salt) == 32 for salt in salts)


@in_loop
async def test_users_survive_a_restart(store: UserStore) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    await users.create("bob", "b")
    await users.alter([CredentialChange("carol", SHA_512, salted_credential(SHA_512, "c", 8192))])
    await users.delete("bob")
    again = store.open()
    assert again.names() == ["alice", "carol"]
    assert again.describe("carol") == {SHA_512: 8192}
    assert await again.verify("alice", SECRET)
    assert await again.verify("carol", "c")
    assert not await again.verify("bob", "b")


@in_loop
async def test_the_password_is_not_stored_and_keys_are_not_shown(store: UserStore) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    stored = store.path.read_bytes()
    credential = users.login_credential("alice", SHA_256)
    assert credential.stored_key.hex().encode() in stored
    assert SECRET.encode() not in stored
    assert "hidden" in repr(credential)
    for secret in (SECRET, credential.stored_key.hex(), repr(credential.stored_key), repr(credential.server_key)):
        assert secret not in repr(credential) + repr(users)


@pytest.mark.parametrize("password", ["x", "pass word", "päss", "p\u00adass", "\u2168", "x" * 1024])
@in_loop
async def test_the_right_password_is_verified_and_no_other(store: UserStore, password: str) -> None:
    users = store.open()
    await users.create("alice", password)
    assert await users.verify("alice", password)
    for wrong in ("", password + "x", password[:-1], password.swapcase(), "x" * 5000, "\ud800"):
        assert wrong == password or not await users.verify("alice", wrong)
    assert not await users.verify("bob", password)


@in_loop
async def test_equal_spellings_of_a_password_are_the_same(store: UserStore) -> None:
    """RFC 4013: a soft hyphen is nothing, a Roman numeral is its letters."""
    users = store.open()
    await users.create("alice", "I\u00adX")
    assert await users.verify("alice", "IX")
    assert await users.verify("alice", "\u2168")


@in_loop
async def test_a_password_that_a_client_salted_is_verified_as_it_was_sent(store: UserStore) -> None:
    """Kafka's tools do not bring passwords into the normal form."""
    users = store.open()
    await users.alter([CredentialChange("alice", SHA_256, salted_credential(SHA_256, "\u2168"))])
    assert await users.verify("alice", "\u2168")
    assert not await users.verify("alice", "IX")


@in_loop
async def test_each_credential_of_a_user_has_its_own_password(store: UserStore) -> None:
    users = store.open()
    await users.alter([CredentialChange("alice", SHA_256, salted_credential(SHA_256, "one"))])
    await users.alter([CredentialChange("alice", SHA_512, salted_credential(SHA_512, "two"))])
    assert [await users.verify("alice", password) for password in ("one", "two", "three")] == [True, True, False]
    await users.alter([CredentialChange("alice", SHA_256, None)])
    assert [await users.verify("alice", password) for password in ("one", "two")] == [False, True]
    await users.alter([CredentialChange("alice", SHA_512, None)])
    assert "alice" not in users
    assert users.describe("alice") is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("a\0b", "SASLprep"),
        ("a\nb", "SASLprep"),
        ("\u2168", "normal form"),
        ("a\u00adb", "normal form"),
        ("\ud800", "surrogates not allowed"),
    ],
)
@in_loop
async def test_names_that_no_client_could_use_are_refused(store: UserStore, name: str, problem: str) -> None:
    users = store.open()
    with pytest.raises(ValueError, match=problem):
        await users.create(name, SECRET)
    with pytest.raises(ValueError, match=problem):
        await users.alter([CredentialChange(name, SHA_256, salted_credential(SHA_256, "x"))])
    assert users.names() == []


@pytest.mark.parametrize("name", ["alice", "a,b=c", "Ünal", "user/with/slashes", "..", "x" * 255])
@in_loop
async def test_other_names_are_accepted(store: UserStore, name: str) -> None:
    users = store.open()
    await users.create(name, SECRET)
    assert store.open().names() == [name]


@pytest.mark.parametrize("password", ["", "x" * 1025, "bell\a", "\u00ad"])
@in_loop
async def test_an_invalid_password_is_refused_without_being_repeated(store: UserStore, password: str) -> None:
    users = store.open()
    with pytest.raises(ValueError, match="password") as raised:
        await users.create("alice", password)
    assert password == "" or password not in str(raised.value)


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
@in_loop
async def test_a_user_cannot_have_a_name_that_means_others_in_acls(store: UserStore, name: str) -> None:
    users = store.open()
    with pytest.raises(ValueError, match="must not be"):
        await users.create(name, SECRET)
    assert name not in users


@in_loop
async def test_wrong_creations_changes_and_deletions_are_refused(store: UserStore) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    with pytest.raises(UserExists):
        await users.create("alice", "other")
    with pytest.raises(UserNotFound):
        await users.set_password("bob", "other")
    with pytest.raises(UserNotFound):
        await users.delete("bob")
    assert await users.verify("alice", SECRET)
    assert users.revision == 2


@in_loop
async def test_listeners_hear_which_users_were_changed(store: UserStore) -> None:
    users, heard = store.open(), list[frozenset[str]]()
    users.listen(heard.append)
    await users.create("alice", SECRET)
    await users.set_password("alice", "new")
    changes = [CredentialChange(name, SHA_256, salted_credential(SHA_256, "x")) for name in ("bob", "carol")]
    await users.alter(changes)
    await users.delete("alice")
    await users.alter([CredentialChange("unknown", SHA_256, None)])
    assert heard == [frozenset(one) for one in ({"alice"}, {"alice"}, {"bob", "carol"}, {"alice"})]


@in_loop
async def test_there_is_a_limit_on_users(store: UserStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "USERS_MAX", 1)
    users = store.open()
    await users.create("alice", SECRET)
    with pytest.raises(ValueError, match="at most 1 users"):
        await users.create("bob", SECRET)
    await users.set_password("alice", "new")
    await users.delete("alice")
    await users.create("bob", SECRET)


@in_loop
async def test_a_change_is_completed_even_if_its_caller_is_cancelled(store: UserStore) -> None:
    """A client that disconnects while its user is being deleted must not keep the user alive in memory."""
    users = store.open()
    await users.create("alice", SECRET)
    deleting = asyncio.ensure_future(users.delete("alice"))
    await asyncio.sleep(0)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    await users.create("bob", "b")
    assert users.names() == ["bob"]


@in_loop
async def test_a_verified_password_is_cached_until_the_user_changes(
    store: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, calls = store.open(), list[str]()
    await users.create("alice", SECRET)
    await users.create("bob", SECRET)
    real = password_checks._is_right

    def counted(credentials: password_checks.Credentials, password: str) -> bool:
        calls.append(password)
        return real(credentials, password)

    monkeypatch.setattr(password_checks, "_is_right", counted)
    for _ in range(3):
        assert await users.verify("alice", SECRET)
        assert await users.verify("bob", SECRET)
    assert len(calls) == 2
    for _ in range(2):
        assert not await users.verify("alice", "wrong")
    assert len(calls) == 4
    await users.set_password("alice", "new")
    assert not await users.verify("alice", SECRET)
    assert await users.verify("bob", SECRET)
    assert len(calls) == 5
    assert not any(SECRET in repr(one) for one in vars(users._passwords).values())


@in_loop
async def test_the_cache_is_bounded(store: UserStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "CACHED_PAIRS_MAX", 2)
    users = store.open()
    for name in ("a", "b", "c"):
        await users.create(name, name)
        assert await users.verify(name, name)
    assert [users._passwords.is_cached(name, name) for name in ("a", "b", "c")] == [False, True, True]


@in_loop
async def test_a_password_that_was_changed_during_its_check_is_wrong(
    store: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    may_go_on, has_begun = threading.Event(), threading.Event()
    real = password_checks._is_right

    def slow(credentials: password_checks.Credentials, password: str) -> bool:
        has_begun.set()
        assert may_go_on.wait(20)
        return real(credentials, password)

    monkeypatch.setattr(password_checks, "_is_right", slow)
    verifying = asyncio.ensure_future(users.verify("alice", SECRET))
    while not has_begun.is_set():
        await asyncio.sleep(0.001)
    await users.delete("alice")
    may_go_on.set()
    assert await verifying is False
    assert not users._passwords.is_cached("alice", SECRET)


@in_loop
async def test_few_passwords_are_hashed_at_the_same_time_and_never_on_the_loop(
    store: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, lock = store.open(), threading.Lock()
    running, most, threads = 0, 0, set[int]()
    real = ScramCredential.is_of_password

    def counted(self: ScramCredential, mechanism: ScramMechanism, password: bytes) -> bool:
        nonlocal running, most
        threads.add(threading.get_ident())
        with lock:
            running += 1
            most = max(most, running)
        try:
            return real(self, mechanism, password)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(ScramCredential, "is_of_password", counted)
    results = await asyncio.gather(*(users.verify(f"user-{number}", "x") for number in range(20)))
    assert results == [False] * 20
    assert most <= password_checks.HASHES_AT_ONCE
    assert len(threads) <= password_checks.HASHES_AT_ONCE
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("host", "user"),
    [("10.0.0.2", "alice"), ("10.0.0.1", "alice"), ("2001:db8:1::1", "alice"), ("::ffff:10.0.0.2", "root")],
)
@in_loop
async def test_guesses_of_one_client_do_not_delay_the_logins_of_others(
    store: UserStore, monkeypatch: pytest.MonkeyPatch, host: str, user: str
) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    await users.create("root", SECRET)
    checks, may_go_on = list[str](), threading.Event()

    def check(credentials: password_checks.Credentials, password: str) -> bool:
        assert may_go_on.wait(20)
        checks.append(password)
        return password == SECRET

    monkeypatch.setattr(password_checks, "_is_right", check)
    hosts = ["10.0.0.1", *(f"2001:db8::{number:x}" for number in range(100))]
    guesses = [
        asyncio.ensure_future(users.verify("root", f"guess {number}", hosts[number % len(hosts)]))
        for number in range(1000)
    ]
    await asyncio.sleep(0)
    login = asyncio.ensure_future(users.verify(user, SECRET, host))
    await asyncio.sleep(0)
    may_go_on.set()
    assert await login
    assert len(checks) < 20, "the login waits for a few guesses, not for all"
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    assert await users.verify("alice", SECRET), "no slot is lost"


@in_loop
async def test_clients_that_send_the_same_password_wait_for_one_check(
    store: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the server, all clients return at the same time."""
    users, checks = store.open(), list[str]()
    await users.create("alice", SECRET)
    real = password_checks._is_right

    def counted(credentials: password_checks.Credentials, password: str) -> bool:
        checks.append(password)
        return real(credentials, password)

    monkeypatch.setattr(password_checks, "_is_right", counted)
    assert all(await asyncio.gather(*(users.verify("alice", SECRET, "10.0.0.1") for _ in range(100))))
    assert len(checks) <= 2 * password_checks.HASHES_AT_ONCE


@in_loop
async def test_unknown_users_cost_the_same_work(store: UserStore, monkeypatch: pytest.MonkeyPatch) -> None:
    users, iterations = store.open(), list[tuple[str, int]]()
    await users.create("alice", SECRET)
    real = ScramCredential.is_of_password

    def counted(self: ScramCredential, mechanism: ScramMechanism, password: bytes) -> bool:
        iterations.append((mechanism.mechanism, self.iterations))
        return real(self, mechanism, password)

    monkeypatch.setattr(ScramCredential, "is_of_password", counted)
    assert not await users.verify("alice", "wrong")
    known = iterations.copy()
    assert not await users.verify("nobody", "wrong")
    assert iterations == known * 2


@in_loop
async def test_the_credential_of_an_unknown_user_looks_real_and_stays_the_same(store: UserStore) -> None:
    users = store.open()
    await users.create("alice", SECRET)
    real, fake = users.login_credential("alice", SHA_512), users.login_credential("nobody", SHA_512)
    assert [len(one) for one in (fake.salt, fake.stored_key, fake.server_key)] == [
        len(one) for one in (real.salt, real.stored_key, real.server_key)
    ]
    assert fake.iterations == real.iterations
    assert fake == users.login_credential("nobody", SHA_512)
    assert fake.salt != users.login_credential("nobody2", SHA_512).salt
    assert users.credential("nobody", SHA_512) is None


@in_loop
async def test_salts_of_unknown_users_survive_a_restart_if_the_node_has_a_secret(store: UserStore) -> None:
    """Otherwise a client that sees another salt after a restart knows that the user does not exist."""
    store.salt_secret = b"s" * 32
    before = {one: store.open().login_credential("nobody", one) for one in ScramMechanism}
    assert before == {one: store.open().login_credential("nobody", one) for one in ScramMechanism}
    store.salt_secret = b"t" * 32
    assert before[SHA_512].salt != store.open().login_credential("nobody", SHA_512).salt


def test_secrets_are_compared_in_constant_time() -> None:
    """CVE-2021-38153: the time of a comparison of secrets revealed how much of them was right."""
    source = Path(str(users_module.__file__)).parent
    for path in ("scram_credential.py", "passwords.py", "users.py", "../sasl/plain.py", "../sasl/scram.py"):
        text = (source / path).read_text(encoding="utf-8")
        assert "_key ==" not in text, path
        assert "== password" not in text, path
    assert "hmac.compare_digest(" in (source / "scram_credential.py").read_text(encoding="utf-8")


@in_loop
async def test_changes_are_recorded_in_the_audit_log_without_secrets(tmp_path: Path) -> None:
    audit = AuditQueue(AuditConfig(True, True, True, -1), ManualClock())
    store = UserStore(tmp_path / "journal", audit)
    try:
        users = store.open()
        await users.create("alice", SECRET)
        await users.set_password("alice", f"{SECRET}-2")
        await users.alter([CredentialChange("alice", SHA_256, None)])
        await users.alter([CredentialChange("alice", SHA_512, None)])
    finally:
        store.close()
    entries = audit.take(100, 2**20)
    assert [one.type for one in entries] == ["user.created", "user.changed", "user.changed", "user.deleted"]
    fields = [msgspec.json.decode(one.data) for one in entries]
    assert {one["resource"]["name"] for one in fields} == {"alice"}
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [one["mechanisms"] for one in fields] == [both, both, ["SCRAM-SHA-512"], []]
    assert SECRET not in str(entries)
