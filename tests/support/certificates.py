"""Certificates for tests, made by trustme: a CA, the server's key store, clients' key stores."""

import datetime
import os
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

HOSTS = ("localhost", "127.0.0.1")


class Authority:
    """A CA and the folder of its files."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self._ca.cert_pem.bytes())

    def issue(
        self, *hosts: str, common_name: str | None = None, is_expired: bool = False, valid_days: int | None = None
    ) -> trustme.LeafCert:
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        if is_expired:
            before = past - datetime.timedelta(days=10)
            return self._ca.issue_cert(*hosts, common_name=common_name, not_before=before, not_after=past)
        if valid_days is not None:
            until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=valid_days)
            return self._ca.issue_cert(*hosts, common_name=common_name, not_after=until)
        return self._ca.issue_cert(*hosts, common_name=common_name)

    def server(self, name: str = "server.pem", *, is_expired: bool = False) -> Path:
        """A PEM key store of a server."""
        return store(self._directory / name, self.issue(*HOSTS, is_expired=is_expired))

    def client(self, common_name: str = "alice", *, is_expired: bool = False) -> Path:
        """A PEM key store of a client."""
        leaf = self.issue(f"{common_name}@example.org", common_name=common_name, is_expired=is_expired)
        return store(self._directory / f"{common_name}.pem", leaf)

    def pkcs12(self, name: str, password: str) -> Path:
        """A PKCS#12 key store of a server."""
        leaf = self.issue(*HOSTS)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = [load_pem_x509_certificate(one.bytes()) for one in leaf.cert_chain_pems]
        encryption = BestAvailableEncryption(password.encode())
        path = self._directory / name
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"kafka", key, chain[0], chain[1:], encryption))  # type: ignore[arg-type]
        return path

    def pkcs12_trust(self, name: str, password: str) -> Path:
        """A PKCS#12 trust store with the CA's certificate."""
        certificate = load_pem_x509_certificate(self._ca.cert_pem.bytes())
        encryption = BestAvailableEncryption(password.encode())
        path = self._directory / name
        path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [certificate], encryption))
        return path


def pem(leaf: trustme.LeafCert) -> bytes:
    return leaf.private_key_pem.bytes() + b"".join(one.bytes() for one in leaf.cert_chain_pems)


def store(path: Path, leaf: trustme.LeafCert) -> Path:
    return replace_file(path, pem(leaf))


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file as tools for certificates do: whole, under another name, then renamed."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path


def pkcs8(key_store: Path) -> Path:
    """Write the same key store with the key in PKCS#8, the only form that Java reads, beside it."""
    text = key_store.read_bytes()
    key = load_pem_private_key(text, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = text[text.index(b"-----BEGIN CERTIFICATE") :]
    return replace_file(key_store.with_name(f"{key_store.stem}-pkcs8.pem"), key + chain)
