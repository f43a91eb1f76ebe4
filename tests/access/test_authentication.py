"""The login of one connection: right and wrong orders, limits, sessions, and every mechanism."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.access.login_limits import LoginLimits
from kwire.access.principal import Principal
from kwire.access.sasl.authentication import (
    LOGIN_REQUESTS_MAX,
    LOGIN_SECONDS_MAX,
    Authentication,
    IllegalRequest,
    LoginStep,
    SaslFailure,
    SaslPolicy,
)
from kwire.access.sasl.login_queue import LoginQueue
from kwire.access.users.users import Users
from kwire.errors import ErrorCode
from tests.support.clock import ManualClock
from tests.support.effort import examples
from tests.support.node import in_loop
from tests.support.users import MECHANISMS, ScramClient, UserStore, plain_token

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 3, 17, 18, 36
ALICE = Principal("User", "alice")
DELAY_MS = 250


class World:
    """A login, with a clock and a sleep that the test sees."""

    def __init__(self, users: Users, *, session_ms: int = 0, mechanisms: tuple[str, ...] = MECHANISMS) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.logins: list[Principal] = []
        self.failures: list[tuple[str | None, str]] = []
        self.login = Authentication(
            users,
            LoginQueue(LoginLimits(ManualClock())),
            SaslPolicy(mechanisms, session_ms, DELAY_MS),
            self.logins.append,
            lambda user, reason: self.failures.append((user, reason)),
            lambda: self.now,
            self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def log_in(self, mechanism: str = "PLAIN", user: str = "alice", password: str = "secret") -> LoginStep:
        """The whole way, with the checks that a connection makes."""
        self.login.check_request(HANDSHAKE)
        await self.login.handshake(mechanism, is_raw=False)
        return await self.send_tokens(mechanism, user, password)

    async def send_tokens(self, mechanism: str, user: str = "alice", password: str = "secret") -> LoginStep:
        self.login.check_request(AUTHENTICATE)
        if mechanism == "PLAIN":
            return await self.login.authenticate(plain_token(user, password))
        client = ScramClient(mechanism, user, password)
        first = await self.login.authenticate(client.first())
        assert first.session_lifetime_ms == 0
        self.login.check_request(AUTHENTICATE)
        final = await self.login.authenticate(client.final(first.token))
        assert final.token == client.server_final
        return final

    def refuses(self, *api_keys: int) -> bool:
        refused = 0
        for key in api_keys:
            try:
                self.login.check_request(key)
            except IllegalRequest:
                refused += 1
        return refused == len(api_keys)


async def failure_of(awaited: Awaitable[Any]) -> SaslFailure:
    with pytest.raises(SaslFailure) as raised:
        await awaited
    return raised.value


async def users_with_alice(store: UserStore) -> Users:
    users = store.open()
    await users.create("alice", "secret")
    await users.create("bob", "secret")
    return users


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_loop
async def test_one_password_serves_every_mechanism(store: UserStore, mechanism: str) -> None:
    world = World(await users_with_alice(store))
    step = await world.log_in(mechanism)
    assert step.session_lifetime_ms == 0
    assert world.login.is_done
    assert (world.logins, world.failures, world.slept) == ([ALICE], [], [])
    assert world.login.deadline is None
    world.login.check_request(METADATA)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
@in_loop
async def test_a_wrong_login_fails_late_and_for_good(
    store: UserStore, mechanism: str, user: str, password: str
) -> None:
    world = World(await users_with_alice(store))
    failure = await failure_of(world.log_in(mechanism, user, password))
    assert failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "secret" not in failure.message
    assert world.slept == [DELAY_MS / 1000]
    # A name that is not a user's may be a password.
    assert [name for name, _ in world.failures] == [user if user == "alice" else None]
    assert world.logins == []
    assert world.login.is_failed
    assert world.refuses(METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE)
    for again in (
        world.login.authenticate(plain_token("alice", "secret")),
        world.login.handshake("PLAIN", is_raw=False),
    ):
        assert (await failure_of(again)).code is ErrorCode.ILLEGAL_SASL_STATE
    assert world.logins == []


@in_loop
async def test_before_the_handshake_only_api_versions_and_a_handshake_are_allowed(store: UserStore) -> None:
    world = World(await users_with_alice(store))
    world.login.check_request(API_VERSIONS)
    assert world.refuses(METADATA, AUTHENTICATE, 0, 1, 50, 51, 65535)
    assert (await failure_of(world.login.authenticate(b""))).code is ErrorCode.ILLEGAL_SASL_STATE
    world.login.check_request(HANDSHAKE)


@in_loop
async def test_after_the_handshake_only_tokens_are_allowed(store: UserStore) -> None:
    world = World(await users_with_alice(store))
    await world.login.handshake("SCRAM-SHA-512", is_raw=False)
    assert world.refuses(API_VERSIONS, HANDSHAKE, METADATA)
    assert (await failure_of(world.login.handshake("PLAIN", is_raw=False))).code is ErrorCode.ILLEGAL_SASL_STATE
    await world.send_tokens("SCRAM-SHA-512")
    assert world.logins == [ALICE]


@in_loop
async def test_a_mechanism_that_is_not_enabled_is_refused_late(store: UserStore) -> None:
    users = await users_with_alice(store)
    for wrong in ("PLAIN", "GSSAPI", "", "scram-sha-256", "SCRAM-SHA-1", "x" * 30_000):
        world = World(users, mechanisms=("SCRAM-SHA-256",))
        failure = await failure_of(world.login.handshake(wrong, is_raw=False))
        assert failure.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert world.slept == [DELAY_MS / 1000]
        assert world.login.is_failed


@in_loop
async def test_the_number_of_requests_of_a_login_is_bounded(store: UserStore) -> None:
    world = World(await users_with_alice(store))
    for _ in range(LOGIN_REQUESTS_MAX):
        world.login.check_request(API_VERSIONS)
    assert world.refuses(API_VERSIONS, HANDSHAKE)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "token",
    [
        pytest.param(None, id="too long to be kept"),
        pytest.param(b"", id="empty"),
        pytest.param(b"x" * 2049, id="giant"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"\0\0", id="nothing"),
        pytest.param(b"\0alice\0", id="no password"),
        pytest.param(b"\0\0secret", id="no name"),
        pytest.param(b"alice\0secret", id="two parts"),
        pytest.param(b"\0alice\0secret\0", id="four parts"),
        pytest.param(b"\0alice\0secret\0\0\0\0", id="seven parts"),
        pytest.param("\0al\ud800ice\0secret".encode("utf-8", "surrogatepass"), id="surrogate"),
        pytest.param(b"\0alice\n\0secret", id="line break"),
        pytest.param(b"\0" + b"x" * 300 + b"\0secret", id="long name"),
    ],
)
@in_loop
async def test_malformed_tokens_fail(store: UserStore, mechanism: str, token: bytes | None) -> None:
    world = World(await users_with_alice(store))
    await world.login.handshake(mechanism, is_raw=False)
    failure = await failure_of(world.login.authenticate(token))
    assert failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (world.logins, len(world.slept)) == ([], 1)


@in_loop
async def test_a_client_may_act_only_as_itself(store: UserStore) -> None:
    """CVE-2017-12610: a client with a password could choose the principal it acted as, by the authorization id."""
    users = await users_with_alice(store)
    for authorization_id, is_allowed in (("", True), ("alice", True), ("bob", False), ("ALICE", False), ("a", False)):
        world = World(users)
        await world.login.handshake("PLAIN", is_raw=False)
        login = world.login.authenticate(plain_token("alice", "secret", authorization_id))
        if is_allowed:
            await login
            assert world.logins == [ALICE]
        else:
            await failure_of(login)
            assert world.logins == []


@in_loop
async def test_unicode_names_and_passwords_are_compared_in_their_normal_form(store: UserStore) -> None:
    users = store.open()
    await users.create("Jürgen", "Größe")
    for mechanism in MECHANISMS:
        world = World(users)
        await world.log_in(mechanism, "Jürgen", "Größe")
        assert world.logins == [Principal("User", "Jürgen")]
    world = World(users)
    await world.log_in("PLAIN", "Ju\u0308rgen", "Gro\u0308ße")
    assert world.logins == [Principal("User", "Jürgen")]


# A character whose normal form has eighteen characters.
EXPANDING = "\ufdfa"


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        pytest.param("PLAIN", f"\0{EXPANDING * 680}\0secret", id="long name, PLAIN"),
        pytest.param("PLAIN", f"\0{EXPANDING * 85}\0secret", id="name with a long normal form, PLAIN"),
        pytest.param("PLAIN", f"\0alice\0{EXPANDING * 341}", id="password with a long normal form"),
        pytest.param("SCRAM-SHA-256", f"n,,n={EXPANDING * 255},r=nonce", id="name with a long normal form, SCRAM"),
    ],
)
@in_loop
async def test_clients_cannot_make_the_server_compute_long_normal_forms(
    store: UserStore, monkeypatch: pytest.MonkeyPatch, mechanism: str, token: str
) -> None:
    """The normal form of a name of 2 kB kept the event loop busy for 70 ms."""
    from scramp import utils

    compared = 0

    def in_table(character: str) -> bool:
        nonlocal compared
        compared += 1
        return False

    world = World(await users_with_alice(store))
    monkeypatch.setattr(utils, "in_table_a1", in_table)
    await world.login.handshake(mechanism, is_raw=False)
    await failure_of(world.login.authenticate(token.encode()))
    assert compared <= 1024


@in_loop
async def test_a_login_has_a_deadline(store: UserStore) -> None:
    world = World(await users_with_alice(store), session_ms=60_000)
    deadlines = [world.login.deadline]
    world.now += 3
    await world.log_in()
    deadlines.append(world.login.deadline)
    world.now += 50
    await world.login.handshake("PLAIN", is_raw=False)
    deadlines.append(world.login.deadline)
    assert deadlines == [1000 + LOGIN_SECONDS_MAX, None, 1053 + LOGIN_SECONDS_MAX]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_loop
async def test_a_client_authenticates_again_before_the_end_of_its_session(store: UserStore, mechanism: str) -> None:
    world = World(await users_with_alice(store), session_ms=10_000)
    assert (await world.log_in(mechanism)).session_lifetime_ms == 10_000
    for _ in range(3):
        world.now += 9.5
        world.login.check_request(METADATA)
        assert (await world.log_in(mechanism)).session_lifetime_ms == 10_000
    assert world.logins == [ALICE] * 4


@in_loop
async def test_after_the_end_of_a_session_every_other_request_is_refused(store: UserStore) -> None:
    world = World(await users_with_alice(store), session_ms=10_000)
    await world.log_in()
    world.now += 10.001
    assert world.refuses(METADATA, API_VERSIONS, AUTHENTICATE)
    await world.log_in()
    world.login.check_request(METADATA)


@in_loop
async def test_during_a_re_authentication_only_tokens_are_allowed(store: UserStore) -> None:
    world = World(await users_with_alice(store), session_ms=10_000)
    await world.log_in()
    world.now += 5
    world.login.check_request(HANDSHAKE)
    await world.login.handshake("PLAIN", is_raw=False)
    assert not world.login.is_done
    assert world.refuses(METADATA, HANDSHAKE, API_VERSIONS)


@in_loop
async def test_a_re_authentication_keeps_mechanism_and_principal(store: UserStore) -> None:
    users = await users_with_alice(store)
    for mechanism, user in (("SCRAM-SHA-256", "alice"), ("PLAIN", "bob")):
        world = World(users, session_ms=10_000)
        await world.log_in()
        world.now += 5
        failure = await failure_of(world.log_in(mechanism, user))
        assert failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert world.logins == [ALICE]
        assert world.login.is_failed
        assert world.refuses(METADATA, HANDSHAKE)


@in_loop
async def test_a_re_authentication_needs_a_session_with_an_end_and_a_second_since_the_last(store: UserStore) -> None:
    users = await users_with_alice(store)
    for session_ms, elapsed_s in ((0, 100.0), (10_000, 0.9)):
        world = World(users, session_ms=session_ms)
        await world.log_in()
        world.now += elapsed_s
        world.login.check_request(HANDSHAKE)
        failure = await failure_of(world.login.handshake("PLAIN", is_raw=False))
        assert failure.code is ErrorCode.ILLEGAL_SASL_STATE
        assert world.login.is_done, "the client stays logged in"
        world.login.check_request(METADATA)


@in_loop
async def test_tokens_without_headers_are_expected_after_version_0_only(store: UserStore) -> None:
    users = await users_with_alice(store)
    for is_raw in (True, False):
        world = World(users)
        assert not world.login.expects_raw_token
        await world.login.handshake("SCRAM-SHA-256", is_raw=is_raw)
        assert world.login.expects_raw_token == is_raw
        client = ScramClient("SCRAM-SHA-256", "alice", "secret")
        final = client.final((await world.login.authenticate(client.first())).token)
        assert world.login.expects_raw_token == is_raw
        await world.login.authenticate(final)
        assert not world.login.expects_raw_token
        assert world.logins == [ALICE]


EVENTS = st.one_of(
    st.tuples(st.just("request"), st.sampled_from((METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE, 0, -1))),
    st.tuples(st.just("handshake"), st.sampled_from((*MECHANISMS, "GSSAPI"))),
    st.tuples(
        st.just("token"),
        st.sampled_from((plain_token("alice", "wrong"), plain_token("bob", "secret"), b"n,,n=alice,r=abc", b"")),
    ),
    st.tuples(st.just("time"), st.sampled_from((0.5, 2.0, 20.0))),
)


@given(events=st.lists(EVENTS, max_size=12), session_ms=st.sampled_from((0, 10_000)))
@settings(max_examples=examples(600), deadline=None)
def test_without_the_password_nobody_becomes_alice(events: list[tuple[str, Any]], session_ms: int) -> None:
    """Bob knows his own password: whatever he sends, in whatever order, he is Bob or nobody."""

    async def run() -> None:
        world = World(_PASSWORDS, session_ms=session_ms)
        for kind, value in events:
            try:
                if kind == "request":
                    world.login.check_request(value)
                elif kind == "handshake":
                    await world.login.handshake(value, is_raw=False)
                elif kind == "token":
                    await world.login.authenticate(value)
                else:
                    world.now += value
            except (SaslFailure, IllegalRequest):
                pass
            assert set(world.logins) <= {Principal("User", "bob")}
            # What was not allowed to log in may not do anything else either.
            assert world.login.is_done or world.refuses(METADATA)

    asyncio.run(run())


class _TwoPasswords:
    """What PLAIN and SCRAM need of the users, without threads."""

    def is_proven(self, name: str, password: str) -> bool:
        return False

    async def verify(self, name: str, password: str, host: str) -> bool:
        return (name, password) == ("bob", "secret")

    def __contains__(self, name: str) -> bool:
        return name == "bob"

    def credential(self, name: str, mechanism: Any) -> None:
        return None

    def login_credential(self, name: str, mechanism: Any) -> Any:
        from kwire.access.users.scram_credential import ScramCredential

        return ScramCredential(bytes(16), 4096, bytes(32), bytes(32))


_PASSWORDS: Users = _TwoPasswords()  # type: ignore[assignment]
