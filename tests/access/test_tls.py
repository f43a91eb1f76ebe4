"""SSL contexts from Kafka's settings: PEM and PKCS#12, versions, suites, client certificates, and clear errors."""

import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kwire.access.certificates.stores import InvalidStore
from kwire.access.tls import TlsListener
from kwire.config import load
from tests.support.certificates import HOSTS, Authority, pem, replace_file

PASSWORD = "hush-hush"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory)


def tls(**settings: object) -> TlsListener:
    given = {"ssl.keystore.type": "PEM", **{name.replace("_", "."): str(text) for name, text in settings.items()}}
    config = load(settings=["listeners=SSL://127.0.0.1:0", *(f"{name}={text}" for name, text in given.items())])
    return TlsListener(config.tls["SSL"])


def loaded(**settings: object) -> TlsListener:
    listener = tls(**settings)
    listener.use(listener.load())
    return listener


def shake_hands(
    listener: TlsListener, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection over memory, after the handshake. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = listener.context.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [there, here]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return here, there


def client_context(authority: Authority, key_store: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if key_store is not None:
        context.load_cert_chain(key_store)
    return context


def test_a_pem_key_store_serves_both_versions(authority: Authority) -> None:
    listener = loaded(ssl_keystore_location=authority.server())
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context(authority)
        context.minimum_version = context.maximum_version = version
        here, _ = shake_hands(listener, context)
        assert here.version() == version.name.replace("_", ".")
        assert listener.principal(here) is None


def test_tls_1_1_is_refused(authority: Authority) -> None:
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    listener = loaded(ssl_keystore_location=authority.server())
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL"):
        shake_hands(listener, context)
    # The same client succeeds with a server that allows the version, so it is the server that refuses.
    listener.context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        listener.context.minimum_version = ssl.TLSVersion.TLSv1_1
    here, _ = shake_hands(listener, context)
    assert here.version() == "TLSv1.1"


def test_a_pkcs12_key_store_is_read_also_under_the_name_jks(authority: Authority) -> None:
    path = authority.pkcs12("server.p12", PASSWORD)
    for kind in ("PKCS12", "pkcs12", "JKS"):
        listener = loaded(ssl_keystore_type=kind, ssl_keystore_location=path, ssl_keystore_password=PASSWORD)
        shake_hands(listener, client_context(authority))


def test_keys_may_be_text_in_settings(authority: Authority) -> None:
    leaf = authority.issue(*HOSTS)
    chain = "".join(one.bytes().decode() for one in leaf.cert_chain_pems)
    text = leaf.private_key_pem.bytes().decode()
    listener = loaded(
        ssl_keystore_key=text,
        ssl_keystore_certificate_chain=chain,
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=authority.path.read_text(),
        ssl_client_auth="required",
    )
    here, _ = shake_hands(listener, client_context(authority, authority.client()))
    assert str(listener.principal(here)).startswith("User:CN=alice,")


def test_an_encrypted_key_needs_its_password(authority: Authority, tmp_path: Path) -> None:
    leaf = authority.issue(*HOSTS)
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    path = tmp_path / "server.pem"
    path.write_bytes(secret + leaf.cert_chain_pems[0].bytes())
    shake_hands(loaded(ssl_keystore_location=path, ssl_key_password=PASSWORD), client_context(authority))
    with pytest.raises(InvalidStore, match=r"ssl\.key\.password is wrong"):
        loaded(ssl_keystore_location=path, ssl_key_password="other")
    with pytest.raises(InvalidStore, match=r"encrypted; set ssl\.key\.password"):
        loaded(ssl_keystore_location=path)


def test_errors_name_file_setting_and_remedy_and_no_secret(authority: Authority, tmp_path: Path) -> None:
    leaf, other = authority.issue(*HOSTS), authority.issue(*HOSTS)
    p12 = authority.pkcs12("bad.p12", PASSWORD)
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(leaf.private_key_pem.bytes() + other.cert_chain_pems[0].bytes())
    keyless = tmp_path / "keyless.pem"
    keyless.write_bytes(leaf.cert_chain_pems[0].bytes())
    damaged = tmp_path / "damaged.pem"
    damaged.write_bytes(pem(leaf).replace(b"MII", b"M", 1)[:-200])
    jks = tmp_path / "server.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(100))
    cases: list[tuple[dict[str, object], str]] = [
        ({"ssl_keystore_location": tmp_path / "none.pem"}, "No such file or directory; check the path"),
        ({"ssl_keystore_location": mixed}, "the private key does not belong to the first certificate"),
        ({"ssl_keystore_location": keyless}, "has no private key"),
        ({"ssl_keystore_location": damaged}, ""),
        ({"ssl_keystore_location": p12}, "is not a PEM file: set ssl.keystore.type=PKCS12"),
        ({"ssl_keystore_location": p12, "ssl_keystore_type": "PKCS12", "ssl_keystore_password": "wrong-secret"},
         "ssl.keystore.password is wrong"),
        ({"ssl_keystore_location": p12, "ssl_keystore_type": "PKCS12"}, "ssl.keystore.password is not set"),
        ({"ssl_keystore_location": mixed, "ssl_keystore_type": "JKS"}, "set ssl.keystore.type=PEM"),
        ({"ssl_keystore_location": jks, "ssl_keystore_type": "JKS"}, "keytool -importkeystore -srckeystore server.jks"),
    ]  # fmt: skip
    for settings, expected in cases:
        with pytest.raises(InvalidStore) as refused:
            loaded(**settings)
        message = str(refused.value)
        assert expected in message
        assert f"ssl.keystore.location={settings['ssl_keystore_location']}" in message
        assert "wrong-secret" not in message
        assert PASSWORD not in message


def test_a_trust_store_is_pem_or_pkcs12(authority: Authority, directory: Path) -> None:
    trust = authority.pkcs12_trust("trust.p12", PASSWORD)
    for kind, path, password in (("PEM", authority.path, None), ("PKCS12", trust, PASSWORD)):
        settings: dict[str, object] = {"ssl_truststore_type": kind, "ssl_truststore_location": path}
        if password:
            settings["ssl_truststore_password"] = password
        listener = loaded(ssl_keystore_location=authority.server(), ssl_client_auth="required", **settings)
        here, _ = shake_hands(listener, client_context(authority, authority.client("bob")))
        assert str(listener.principal(here)).startswith("User:CN=bob,")
    with pytest.raises(InvalidStore, match=r"ssl\.truststore\.password is wrong"):
        loaded(
            ssl_keystore_location=authority.server(),
            ssl_truststore_type="PKCS12",
            ssl_truststore_location=trust,
            ssl_truststore_password="x",
        )


@pytest.mark.parametrize(
    ("mode", "client", "outcome"),
    [
        ("none", "", "anonymous"),
        ("none", "alice", "anonymous"),
        ("requested", "", "anonymous"),
        ("requested", "alice", "alice"),
        ("requested", "stranger", "refused"),
        ("required", "", "refused"),
        ("required", "alice", "alice"),
        ("required", "stranger", "refused"),
        ("required", "expired", "refused"),
    ],
)
def test_client_certificates(authority: Authority, tmp_path: Path, mode: str, client: str, outcome: str) -> None:
    key_stores: dict[str, Callable[[], Path | None]] = {
        "": lambda: None,
        "alice": authority.client,
        "stranger": lambda: Authority(tmp_path, "other").client("stranger"),
        "expired": lambda: authority.client("late", is_expired=True),
    }
    listener = loaded(
        ssl_keystore_location=authority.server(),
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.path,
        ssl_client_auth=mode,
        ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/",
    )
    context = client_context(authority, key_stores[client]())
    if outcome == "refused":
        with pytest.raises(ssl.SSLError):
            shake_hands(listener, context)
        return
    here, _ = shake_hands(listener, context)
    principal = listener.principal(here)
    assert (principal.name if principal else "anonymous") == outcome


def test_cipher_suites_have_iana_names(authority: Authority) -> None:
    path = authority.server()
    listener = loaded(ssl_keystore_location=path, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    here, _ = shake_hands(listener, client_context(authority))
    cipher = here.cipher()
    assert cipher is not None
    assert (cipher[0], here.version()) == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
    for suites, problem in (
        ("TLS_RSA_WITH_RC4_128_MD5", "is not supported; supported are"),
        ("TLS_AES_128_GCM_SHA256", "only together"),
    ):
        with pytest.raises(InvalidStore, match=problem):
            loaded(ssl_keystore_location=path, ssl_cipher_suites=suites)
    with pytest.raises(InvalidStore, match=r"ssl\.cipher\.suites has no suite"):
        loaded(
            ssl_keystore_location=path,
            ssl_enabled_protocols="TLSv1.3",
            ssl_cipher_suites="ECDHE-RSA-AES256-GCM-SHA384",
        )


def test_a_changed_file_gives_a_new_context_and_a_broken_one_is_reported_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(authority.server().read_bytes())
    listener = loaded(ssl_keystore_location=path)
    first = listener.context
    assert listener.load_if_changed() is None
    replace_file(path, b"nonsense")
    for _ in range(3):
        with pytest.raises(InvalidStore) as failed:
            listener.load_if_changed()
        listener.report_failure(failed.value)
    assert listener.context is first
    assert listener.failed_reloads == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    replace_file(path, pem(authority.issue(*HOSTS)))
    renewed = listener.load_if_changed()
    assert renewed is not None
    listener.use(renewed)
    assert listener.context is not first
    assert listener.reloads == 1


def test_an_expired_certificate_is_logged(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    listener = loaded(ssl_keystore_location=authority.server("late.pem", is_expired=True))
    assert "has expired" in caplog.text
    assert listener.expires_at < os.stat(authority.path).st_mtime


def test_no_file_with_the_key_is_left(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    before = set(os.listdir("/proc/self/fd"))
    loaded(
        ssl_keystore_type="PKCS12",
        ssl_keystore_location=authority.pkcs12("x.p12", PASSWORD),
        ssl_keystore_password=PASSWORD,
    )
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.needs_java
def test_a_real_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "real.jks"
    subprocess.run(
        ["keytool", "-genkeypair", "-keyalg", "EC", "-alias", "a", "-dname", "CN=x", "-storetype", "JKS",
         "-keystore", str(path), "-storepass", PASSWORD, "-keypass", PASSWORD],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    with pytest.raises(InvalidStore, match="keytool -importkeystore"):
        loaded(ssl_keystore_type="JKS", ssl_keystore_location=path, ssl_keystore_password=PASSWORD)
