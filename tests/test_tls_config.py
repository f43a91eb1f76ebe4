"""Settings of TLS: prefixes of listeners, contradictions, and which binds are refused."""

from pathlib import Path

import pytest

from kwire.config import InvalidConfig, load

PEM = ["ssl.keystore.type=PEM", "ssl.keystore.location=/s.pem"]
TRUST = ["ssl.truststore.type=PEM", "ssl.truststore.location=/ca.pem"]
OPEN = ["kwire.allow.unauthenticated=true"]


def refused(*settings: str) -> str:
    with pytest.raises(InvalidConfig) as refusal:
        load(settings=settings)
    return str(refusal.value)


def test_a_prefix_sets_a_value_for_one_listener() -> None:
    protocols = "listener.security.protocol.map=A:SSL,B:SSL"
    both = "listeners=A://127.0.0.1:1,B://127.0.0.1:2"
    own = ["listener.name.b.ssl.keystore.location=/b.pem", "listener.name.b.ssl.client.auth=required"]
    config = load(settings=[both, protocols, *PEM, *TRUST, *own])
    assert {name: one.key_store.location for name, one in config.tls.items()} == {"A": "/s.pem", "B": "/b.pem"}
    assert [one.client_auth for one in config.tls.values()] == ["none", "required"]
    assert config.tls["B"].key_store.setting == "listener.name.b.ssl.keystore.location"
    assert config.warnings == ()


def test_a_prefix_before_another_name_is_unknown() -> None:
    assert "unknown setting listener.name.a.num.partitions" in refused("listener.name.a.num.partitions=3")
    assert "Invalid value no" in refused("listener.name.a.ssl.client.auth=no")


def test_sasl_ssl_uses_only_its_own_client_auth() -> None:
    listener = "listeners=SASL_SSL://127.0.0.1:1"
    common = load(settings=[listener, *PEM, *TRUST, "ssl.client.auth=required"])
    assert common.tls["SASL_SSL"].client_auth == "none"
    own = load(settings=[listener, *PEM, *TRUST, "listener.name.sasl_ssl.ssl.client.auth=required"])
    assert own.tls["SASL_SSL"].client_auth == "required"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([], "TLS needs a private key and a certificate"),
        ([*PEM, "ssl.keystore.password=x"], "ssl.key.password"),
        ([*PEM, "ssl.client.auth=required"], "set ssl.truststore.location"),
        ([*PEM, "ssl.keystore.key=k", "ssl.keystore.certificate.chain=c"], "are both set"),
        (["ssl.keystore.type=PEM", "ssl.keystore.key=k"], "must be set together"),
        (["ssl.keystore.key=k", "ssl.keystore.certificate.chain=c"], "set ssl.keystore.type=PEM"),
        ([*PEM, "ssl.enabled.protocols=TLSv1.1,TLSv1.2"], "older versions are not secure"),
        ([*PEM, "ssl.protocol=SSLv3"], "String must be one of: TLS, TLSv1.2, TLSv1.3"),
        (["ssl.keystore.type=BKS", "ssl.keystore.location=/x"], "Expected PEM or PKCS12"),
    ],
)
def test_contradictions_are_refused(settings: list[str], problem: str) -> None:
    assert problem in refused("listeners=SSL://127.0.0.1:0", *settings)


def test_settings_of_tls_do_not_matter_without_a_listener_that_uses_them() -> None:
    assert load(settings=["ssl.client.auth=required", "ssl.keystore.password=x"]).tls == {}


def test_a_flag_with_a_secret_is_hidden_in_messages() -> None:
    for name in ("ssl.keystore.password", "ssl.keystore.key", "listener.name.x.unknown.password"):
        assert "planted-secret" not in refused("listeners=SSL://127.0.0.1:0", f"{name}=planted-secret")
    config = load(settings=["listeners=SSL://127.0.0.1:0", *PEM, "ssl.key.password=planted-secret"])
    assert "planted-secret" not in repr(config.tls)
    assert config.tls["SSL"].key_store.key_password == "planted-secret"


def test_an_open_address_needs_authentication() -> None:
    public = "listeners=SSL://0.0.0.0:9093"
    assert "its clients are not authenticated" in refused(public, *PEM)
    assert "its clients are not authenticated" in refused(public, *PEM, *TRUST, "ssl.client.auth=requested")
    assert load(settings=[public, *PEM, *TRUST, "ssl.client.auth=required"]).warnings == ()
    (warning,) = load(settings=[public, *PEM, *OPEN]).warnings
    assert "does not authenticate clients" in warning


def test_an_open_http_port_needs_authentication() -> None:
    public = ["kwire.http.listener=0.0.0.0:8082", *PEM, *TRUST]
    assert "kwire.http.listener" in refused(*public)
    assert "kwire.http.listener" in refused(*public, "kwire.http.tls=true")
    required = "listener.name.http.ssl.client.auth=required"
    config = load(settings=[*public, "kwire.http.tls=true", required])
    assert config.warnings == ()
    assert config.http_tls is not None
    assert config.http_tls.authenticates
    assert "kwire.http.listener" in refused(*public, required)


def test_a_file_gives_names_with_a_prefix_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SSL://127.0.0.1:0\nlistener.name.ssl.ssl.keystore.type=PEM\n"
                    "listener.name.ssl.ssl.keystore.location=/x.pem\n")  # fmt: skip
    config = load(files=[file], environment={"KAFKA_LISTENER_NAME_SSL_SSL_KEY_PASSWORD": "hush"})
    assert config.warnings == ()
    assert config.tls["SSL"].key_store.key_password == "hush"
    assert config.values["listener.name.ssl.ssl.key.password"].setting.is_sensitive
