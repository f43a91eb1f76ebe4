"""Key stores and trust stores: private keys and certificates from PEM or PKCS#12 files, or from PEM text in settings.

`cryptography` reads PKCS#12. It is imported only for such a file, because the import takes longer than the rest of the
start.
"""

import base64
import binascii
import os
import re
from typing import NamedTuple

from kwire.config.tls import JKS, PEM, StoreConfig

STORE_BYTES_MAX = 1024 * 1024
_JKS_MAGIC = bytes.fromhex("feedfeed")
_DER_SEQUENCE = b"\x30"
_CERTIFICATE = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----\s*([A-Za-z0-9+/=\s]*)-----END [^-]*-----")
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?-----END (?P=kind)-----", re.DOTALL)
_ENCRYPTED_KEY = re.compile(rb"BEGIN ENCRYPTED|Proc-Type:\s*4,ENCRYPTED")


class InvalidStore(ValueError):
    """A key store or trust store cannot be used. The message names file, setting and remedy, and no secret."""


class KeyMaterial(NamedTuple):
    """A private key, as PEM, and its certificate chain, as DER; the server's own certificate is the first."""

    key: bytes
    password: str | None
    certificates: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.certificates)} certificates)"


def read_key_store(config: StoreConfig) -> KeyMaterial:
    """Read the private key and the certificate chain. Raises InvalidStore."""
    if config.inline_key is not None and config.inline_certificates is not None:
        key, chain = config.inline_key.encode(), config.inline_certificates.encode()
        return _pem_material(config, _place(config), key, chain)
    place, content = _content(config)
    if config.type == PEM:
        _check_is_pem(content, place, config)
        return _pem_material(config, place, content, content)
    return _pkcs12_material(config, place, content)


def read_trust_store(config: StoreConfig) -> tuple[bytes, ...]:
    """Return the trusted certificates as DER. Raises InvalidStore."""
    if config.inline_certificates is not None:
        return _certificates(config.inline_certificates.encode(), _place(config))
    place, content = _content(config)
    if config.type == PEM:
        _check_is_pem(content, place, config)
        return _certificates(content, place)
    _check_is_pkcs12(content, place, config)
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _load_pkcs12(content, config.password, place, "ssl.truststore.password")
    found = [one.certificate for one in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise InvalidStore(f"{place} has no certificates; add the CA certificate with keytool -importcert")
    return tuple(one.public_bytes(Encoding.DER) for one in found)


def _place(config: StoreConfig) -> str:
    return f"{config.setting}={config.location}" if config.location is not None else config.setting


def _content(config: StoreConfig) -> tuple[str, bytes]:
    assert config.location is not None
    place = _place(config)
    try:
        with open(config.location, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidStore(
            f"{place} cannot be read: {error.strerror}; check the path and that the user of the server may read it"
        ) from None
    if len(content) > STORE_BYTES_MAX:
        raise InvalidStore(f"{place} has more than {STORE_BYTES_MAX} bytes; it is not a key store or trust store")
    return place, content


def _check_is_pem(content: bytes, place: str, config: StoreConfig) -> None:
    if b"-----BEGIN" not in content:
        name = _type_setting(config)
        hint = f"set {name}=PKCS12 for a .p12 file" if content[:1] == _DER_SEQUENCE else "expected -----BEGIN"
        raise InvalidStore(f"{place} is not a PEM file: {hint}")


def _check_is_pkcs12(content: bytes, place: str, config: StoreConfig) -> None:
    if content[:4] == _JKS_MAGIC:
        file = os.path.basename(config.location or "store.jks")
        raise InvalidStore(
            f"{place} is a JKS file, which only Java reads; convert it with: keytool -importkeystore -srckeystore "
            f"{file} -destkeystore {os.path.splitext(file)[0]}.p12 -deststoretype PKCS12, and set "
            f"{_type_setting(config)}=PKCS12"
        )
    if b"-----BEGIN" in content:
        default = " (the default)" if config.type == JKS else ""
        name = _type_setting(config)
        raise InvalidStore(f"{place} is a PEM file, but {name} is {config.type}{default}; set {name}=PEM")
    if content[:1] != _DER_SEQUENCE:
        raise InvalidStore(f"{place} is not a PKCS#12 file")


def _type_setting(config: StoreConfig) -> str:
    return config.setting.replace(".location", ".type")


def _pem_material(config: StoreConfig, place: str, key_text: bytes, chain_text: bytes) -> KeyMaterial:
    keys = list(_PRIVATE_KEY.finditer(key_text))
    if len(keys) != 1:
        found = "no private key" if not keys else f"{len(keys)} private keys"
        raise InvalidStore(f"{place} has {found}; expected one -----BEGIN PRIVATE KEY----- with the certificate chain")
    key = keys[0][0] + b"\n"
    password = None
    if _ENCRYPTED_KEY.search(key):
        password = config.key_password
        if password is None:
            raise InvalidStore(f"{place}: the private key is encrypted; set ssl.key.password")
    return KeyMaterial(key, password, _certificates(chain_text, place))


def _certificates(text: bytes, place: str) -> tuple[bytes, ...]:
    try:
        found = tuple(base64.b64decode(b"".join(one.split()), validate=True) for one in _CERTIFICATE.findall(text))
    except (binascii.Error, ValueError):
        raise InvalidStore(f"{place}: a certificate is damaged (not valid base64); copy the file again") from None
    if not found:
        raise InvalidStore(f"{place} has no certificates; expected -----BEGIN CERTIFICATE-----")
    return found


def _pkcs12_material(config: StoreConfig, place: str, content: bytes) -> KeyMaterial:
    _check_is_pkcs12(content, place, config)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if config.key_password is not None and config.key_password != (config.password or ""):
        raise InvalidStore(
            f"{place}: ssl.key.password differs from ssl.keystore.password; in a PKCS#12 file both are the same"
        )
    store = _load_pkcs12(content, config.password, place, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise InvalidStore(f"{place} has no private key with a certificate; export both, with openssl pkcs12 -export")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = (store.cert, *store.additional_certs)
    return KeyMaterial(key, None, tuple(one.certificate.public_bytes(Encoding.DER) for one in chain))


def _load_pkcs12(content: bytes, password: str | None, place: str, password_setting: str):  # type: ignore[no-untyped-def]
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise InvalidStore(f"{place}: {error}; export the file again with a current program") from None
    except ValueError:
        missing = " is not set, or the file is damaged" if password is None else " is wrong, or the file is damaged"
        raise InvalidStore(f"{place} cannot be opened: {password_setting}{missing}") from None
