"""kwire tls init makes certificates that OpenSSL accepts, keeps keys private and overwrites nothing."""

import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from kwire.access.tls import TlsListener
from kwire.cli import main
from kwire.config import load
from kwire.config.properties import decode_properties
from tests.access.test_tls import shake_hands

FILES = {"ca.pem": 0o644, "ca-key.pem": 0o600, "server.pem": 0o600, "client.pem": 0o600}


def test_the_printed_settings_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "certificates"
    assert main(["tls", "init", "--dir", str(directory), "localhost", "broker.example", "::1", "127.0.0.1"]) == 0
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == FILES
    output = capsys.readouterr().out
    section = output[output.index("# Server") : output.index("# Java")]
    config = load(settings=[f"{name}={text}" for name, text in decode_properties(section).items()])
    assert config.http_tls is not None
    listener = TlsListener(config.tls["SSL"])
    listener.use(listener.load())
    client = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    client.load_cert_chain(directory / "client.pem")
    for host in ("localhost", "broker.example", "::1", "127.0.0.1"):
        here, _ = shake_hands(listener, client, host)
        assert str(listener.principal(here)) == "User:CN=client"
    for shown in ("ssl.ca.location=", "ssl_cafile=", "ssl.truststore.location="):
        assert f"{shown}{directory}/ca.pem".replace("=", '="', 1) in output or f"{shown}{directory}/ca.pem" in output


def test_names_of_all_kinds_are_in_the_certificate(tmp_path: Path) -> None:
    assert main(["tls", "init", "--dir", str(tmp_path), "a.example", "10.1.2.3", "*.b.example"]) == 0
    text = (tmp_path / "server.pem").read_bytes()
    certificate = x509.load_pem_x509_certificate(text)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example", "*.b.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.1.2.3")]


@pytest.mark.parametrize("existing", FILES)
def test_nothing_is_overwritten(tmp_path: Path, existing: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / existing).write_text("precious")
    assert main(["tls", "init", "--dir", str(tmp_path), "localhost"]) == 1
    assert "is not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["localhost:9092"], "without a port"),
        (["--days", "0", "localhost"], "--days must be at least 1"),
        (["--client-name", "x" * 65, "localhost"], "1 to 64 characters"),
    ],
)
def test_bad_arguments_make_no_files(
    tmp_path: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tls", "init", "--dir", str(tmp_path / "x"), *arguments]) == 1
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
