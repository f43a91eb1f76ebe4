"""The TLS contexts of commands: whom they trust, and the client certificate that they show."""

import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kwire.access.certificates.stores import InvalidStore, KeyMaterial, read_key_store, read_trust_store
from kwire.cli.framework.errors import UsageError
from kwire.config.tls import PEM, StoreConfig


def client_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that verifies the server. Without a trust store, the system's certificates are trusted.

    `given` has Kafka's client settings. Raises InvalidStore, a ValueError, if a store cannot be used.
    """
    trust_store, key_store = _trust_store(given), _key_store(given)
    context = ssl.create_default_context() if trust_store is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    if trust_store is not None:
        # As in Java, every certificate of the trust store is trusted, not only self-signed ones.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        certificates = read_trust_store(trust_store)
        try:
            context.load_verify_locations(cadata=b"".join(certificates))
        except ssl.SSLError as error:
            raise InvalidStore(f"{trust_store.setting}: a certificate is not valid: {error.reason or error}") from None
    if key_store is not None:
        _load_key(context, read_key_store(key_store), key_store.setting)
    return context


class PemText(NamedTuple):
    """Certificates and a key as PEM, for a client that has no files. `trusted` is None without a trust store, and the
    others are None without a client certificate. The key is PKCS#8 without a password."""

    trusted: str | None
    certificate_chain: str | None
    key: str | None

    def __repr__(self) -> str:
        return f"PemText(has_trusted={self.trusted is not None}, has_key={self.key is not None})"


def pem_text(given: Mapping[str, str]) -> PemText:
    """Return the certificates of Kafka's client settings as PEM, whatever the format of the stores is.

    Raises InvalidStore, a ValueError, if a store cannot be used.
    """
    trust_store, key_store = _trust_store(given), _key_store(given)
    trusted = None if trust_store is None else _certificates_text(read_trust_store(trust_store))
    if key_store is None:
        return PemText(trusted, None, None)
    material = read_key_store(key_store)
    return PemText(trusted, _certificates_text(material.certificates), _key_text(material, key_store.setting))


def _certificates_text(certificates: Iterable[bytes]) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(one) for one in certificates)


def _key_text(material: KeyMaterial, setting: str) -> str:
    # Imported here, because it takes longer than most commands run.
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    try:
        password = None if material.password is None else material.password.encode()
        key = load_pem_private_key(material.key, password)
    except (ValueError, TypeError):
        raise InvalidStore(f"{setting}: the private key cannot be used: ssl.key.password may be wrong") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def context_of_ca_file(path: Path) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a PEM file. Raises UsageError."""
    try:
        context = ssl.create_default_context(cafile=path)
    except OSError as error:
        raise UsageError(f"--cacert {path}: {error.strerror or error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _trust_store(given: Mapping[str, str]) -> StoreConfig | None:
    inline = given.get("ssl.truststore.certificates")
    location = given.get("ssl.truststore.location") or given.get("ssl.ca.location")
    if inline is None and location is None:
        return None
    return StoreConfig(
        setting="ssl.truststore.location",
        type=_store_type(given.get("ssl.truststore.type"), location),
        location=location,
        password=given.get("ssl.truststore.password"),
        key_password=None,
        inline_key=None,
        inline_certificates=inline,
    )


def _key_store(given: Mapping[str, str]) -> StoreConfig | None:
    location = given.get("ssl.keystore.location")
    if location is None and "ssl.keystore.key" not in given:
        return None
    return StoreConfig(
        setting="ssl.keystore.location",
        type=_store_type(given.get("ssl.keystore.type"), location),
        location=location,
        password=given.get("ssl.keystore.password"),
        key_password=given.get("ssl.key.password"),
        inline_key=given.get("ssl.keystore.key"),
        inline_certificates=given.get("ssl.keystore.certificate.chain"),
    )


def _store_type(given: str | None, location: str | None) -> str:
    """Return the type of a store. By default it follows from the name of the file, and is PEM if that says nothing."""
    if given:
        return given.strip().upper()
    suffix = os.path.splitext(location or "")[1].lower()
    return {".p12": "PKCS12", ".pfx": "PKCS12", ".jks": "JKS"}.get(suffix, PEM)


def _load_key(context: ssl.SSLContext, material: KeyMaterial, setting: str) -> None:
    # SSLContext loads keys from paths only. This path is that of a file in memory, which no other user can open.
    text = material.key + b"".join(ssl.DER_cert_to_PEM_cert(one).encode() for one in material.certificates)
    descriptor = os.memfd_create("kwire-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text)
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=material.password or "")
    except ssl.SSLError as error:
        reason = "ssl.key.password may be wrong" if material.password is not None else error.reason or str(error)
        raise InvalidStore(f"{setting}: the private key or its certificate cannot be used: {reason}") from None
    finally:
        os.close(descriptor)
