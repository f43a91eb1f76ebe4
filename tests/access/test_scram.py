"""SASL/SCRAM: the vectors of the RFCs, and everything that a client can get wrong."""

import asyncio
from functools import partial

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.access.principal import Principal
from kwire.access.sasl.mechanism import AuthenticationFailed
from kwire.access.sasl.scram import ScramExchange
from kwire.access.users.scram_credential import ScramCredential, ScramMechanism, credential_of_salted, salted_password
from kwire.access.users.users import CredentialChange, Users
from tests.support.effort import examples
from tests.support.node import in_loop
from tests.support.users import ScramClient, UserStore

# Mechanism, salt, server's nonce, and the four messages. RFC 7677, section 3; for SHA-512 there is no vector in an RFC:
# this one is used by implementations of XMPP.
VECTORS = {
    ScramMechanism.SHA_256: (
        "5b6d99689d12358eeca04b141236fa81",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    ScramMechanism.SHA_512: (
        "6229f616e1d3b7f33490959bd2df4e237da7d9598e1a2de6f897e33afb8317cf",
        "02431b08-2f89-4bad-a4e6-80c0564ec865",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
        "s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
        "p=Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
        "v=BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    ),
}
BOTH = pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=lambda one: one.mechanism)


def credential(mechanism: ScramMechanism, password: str, salt: bytes = bytes(16)) -> ScramCredential:
    return credential_of_salted(mechanism, salted_password(mechanism, password.encode(), salt, 4096), salt, 4096)


async def users_with_pencil(store: UserStore, mechanism: ScramMechanism, salt: bytes = bytes(16)) -> Users:
    users = store.open()
    await users.alter([CredentialChange("user", mechanism, credential(mechanism, "pencil", salt))])
    return users


@BOTH
@in_loop
async def test_vectors(store: UserStore, mechanism: ScramMechanism) -> None:
    salt, nonce, client_first, server_first, client_final, server_final = VECTORS[mechanism]
    users = await users_with_pencil(store, mechanism, bytes.fromhex(salt))
    exchange = ScramExchange(users, mechanism, nonce)
    assert (await exchange.step(client_first.encode())).decode() == server_first
    assert exchange.principal is None
    assert (await exchange.step(client_final.encode())).decode() == server_final
    assert exchange.principal == Principal("User", "user")


def test_the_vector_of_rfc_5802_holds_for_the_package() -> None:
    """It is one of SCRAM-SHA-1, which the server does not offer."""
    mechanism = scramp.ScramMechanism("SCRAM-SHA-1")
    salt = bytes.fromhex("4125c247e43ab1e93c6dff76")
    server = mechanism.make_server(
        lambda name: mechanism.make_auth_info("pencil", 4096, salt), s_nonce="3rfcNHYJY1ZVvWVs7j"
    )
    server.set_client_first("n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL")
    assert server.get_server_first() == "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    server.set_client_final("c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
    assert server.get_server_final() == "v=rmF9pqV8S7suAoZWja4dJRkFsKQ="


@BOTH
@in_loop
async def test_a_client_and_the_server_prove_the_password_to_each_other(
    store: UserStore, mechanism: ScramMechanism
) -> None:
    users = store.open()
    for name in ("alice", "a,b=c", "Ünal"):
        await users.create(name, "pencil")
        for gs2 in ("n,,", "y,,"):
            client = ScramClient(mechanism.mechanism, name, "pencil", gs2=gs2)
            exchange = ScramExchange(users, mechanism)
            final = await exchange.step(client.final(await exchange.step(client.first())))
            assert final == client.server_final
            assert exchange.principal == Principal("User", name)


@BOTH
@in_loop
async def test_the_nonce_of_the_final_message_is_checked(store: UserStore, mechanism: ScramMechanism) -> None:
    """CVE-2024-56128: Kafka did not compare the nonce, so a final message could be replayed to another exchange."""
    users = await users_with_pencil(store, mechanism)
    for change in (lambda right: right[:-1], lambda right: right + "x", lambda right: "x" + right, lambda right: "x"):
        client = ScramClient(mechanism.mechanism, "user", "pencil")
        exchange = ScramExchange(users, mechanism)
        first = await exchange.step(client.first())
        nonce = first.decode().partition(",")[0].removeprefix("r=")
        with pytest.raises(AuthenticationFailed):
            await exchange.step(client.final(first, nonce=change(nonce)))
        assert exchange.principal is None


@BOTH
@in_loop
async def test_the_doubled_nonce_of_old_librdkafka_is_accepted(store: UserStore, mechanism: ScramMechanism) -> None:
    """Before version 2.6.1 the client's nonce was put before the whole nonce again. Kafka accepts it, too."""
    users = await users_with_pencil(store, mechanism)
    client = ScramClient(mechanism.mechanism, "user", "pencil", nonce="client-nonce")
    exchange = ScramExchange(users, mechanism)
    first = await exchange.step(client.first())
    nonce = first.decode().partition(",")[0].removeprefix("r=")
    assert await exchange.step(client.final(first, nonce="client-nonce" + nonce)) == client.server_final
    assert exchange.principal == Principal("User", "user")


@BOTH
@in_loop
async def test_every_exchange_has_a_nonce_of_its_own(store: UserStore, mechanism: ScramMechanism) -> None:
    users = await users_with_pencil(store, mechanism)
    client = ScramClient(mechanism.mechanism, "user", "pencil")
    first, second = ScramExchange(users, mechanism), ScramExchange(users, mechanism)
    replayed = client.final(await first.step(client.first()))
    await second.step(client.first())
    with pytest.raises(AuthenticationFailed):
        await second.step(replayed)


@in_loop
async def test_wrong_users_passwords_and_mechanisms_fail_alike(store: UserStore) -> None:
    """The same steps, the same message, and a first answer that shows nothing."""
    users = await users_with_pencil(store, ScramMechanism.SHA_256)
    problems = set()
    for mechanism, name, password in (
        (ScramMechanism.SHA_256, "user", "pen"),
        (ScramMechanism.SHA_256, "nobody", "pencil"),
        (ScramMechanism.SHA_512, "user", "pencil"),
    ):
        client = ScramClient(mechanism.mechanism, name, password)
        exchange = ScramExchange(users, mechanism)
        first = await exchange.step(client.first())
        assert first.endswith(b",i=4096")
        with pytest.raises(AuthenticationFailed) as raised:
            await exchange.step(client.final(first))
        assert exchange.principal is None
        assert exchange.claimed_user == name
        problems.add(str(raised.value).replace("512", "256"))
    assert len(problems) == 1


@in_loop
async def test_a_user_that_is_changed_during_the_exchange_cannot_log_in(store: UserStore) -> None:
    users = store.open()
    for change in (partial(users.delete, "alice"), partial(users.set_password, "alice", "pencil")):
        await users.create("alice", "pencil")
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil")
        exchange = ScramExchange(users, ScramMechanism.SHA_256)
        final = client.final(await exchange.step(client.first()))
        await change()
        with pytest.raises(AuthenticationFailed):
            await exchange.step(final)
        assert exchange.principal is None


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("", id="empty"),
        pytest.param("n,,", id="no name"),
        pytest.param("n,,n=user", id="no nonce"),
        pytest.param("n,,r=abc,n=user", id="wrong order"),
        pytest.param("n,,n=,r=abc", id="empty name"),
        pytest.param("n,,n=user,r=", id="empty nonce"),
        pytest.param("n,,n=us=er,r=abc", id="equals sign that is not escaped"),
        pytest.param("n,,n=user,r=a b", id="nonce with a space"),
        pytest.param("n,,n=user,r=abc,tokenauth=true", id="Kafka's delegation tokens"),
        pytest.param("n,,m=x,n=user,r=abc", id="mandatory extension"),
        pytest.param("p=tls-unique,,n=user,r=abc", id="channel binding"),
        pytest.param("p=tls-exporter,,n=user,r=abc", id="another channel binding"),
        pytest.param("x,,n=user,r=abc", id="unknown flag"),
        pytest.param("n,a=user,n=user,r=abc", id="authorization id of the user"),
        pytest.param("n,a=root,n=user,r=abc", id="authorization id of another user: CVE-2017-12610"),
        pytest.param("n,,n=user\0,r=abc", id="NUL"),
        pytest.param("n,,n=" + "x" * 256 + ",r=abc", id="long name"),
        pytest.param("n,,n=user,n=root,r=abc", id="two names"),
        pytest.param("n=user,r=abc", id="no GS2 header"),
    ],
)
@in_loop
async def test_malformed_first_messages_fail(store: UserStore, first: str) -> None:
    users = await users_with_pencil(store, ScramMechanism.SHA_256)
    exchange = ScramExchange(users, ScramMechanism.SHA_256)
    with pytest.raises(AuthenticationFailed):
        await exchange.step(first.encode())
    assert exchange.principal is None


@in_loop
async def test_a_changed_channel_binding_fails(store: UserStore) -> None:
    users = await users_with_pencil(store, ScramMechanism.SHA_256)
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", gs2="n,,")
    exchange = ScramExchange(users, ScramMechanism.SHA_256)
    with pytest.raises(AuthenticationFailed):
        await exchange.step(client.final(await exchange.step(client.first()), binding="y,,"))


@given(
    tokens=st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from((b"n,,n=user,r=abc", b"c=biws,r=x,p="))), max_size=4
    )
)
@settings(max_examples=examples(400), deadline=None)
def test_no_tokens_without_the_password_log_in(tokens: list[bytes]) -> None:
    async def run() -> None:
        exchange = ScramExchange(_KNOWS_USER, ScramMechanism.SHA_256)
        for token in tokens:
            try:
                await exchange.step(token)
            except AuthenticationFailed:
                break
        assert exchange.principal is None

    asyncio.run(run())


class _OneUser:
    """What an exchange needs of the users: one of them."""

    def __init__(self) -> None:
        self.found = credential(ScramMechanism.SHA_256, "pencil")

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        return self.found

    login_credential = credential


_KNOWS_USER: Users = _OneUser()  # type: ignore[assignment]
