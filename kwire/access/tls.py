"""TLS of a listener: the SSL context that is built from its settings, and built again when a file changes.

New connections use the newest context; open connections keep theirs. A context is replaced as a whole, so a new trust
store and new session keys take effect together with a new certificate. A session that was resumed with a ticket of the
old context is not accepted by the new one.
"""

import logging
import os
import ssl
from time import time
from typing import NamedTuple

from kwire.access.certificates.cipher_suites import select_suites
from kwire.access.certificates.stores import InvalidStore, KeyMaterial, read_key_store, read_trust_store
from kwire.access.certificates.x509 import not_after, subject_name
from kwire.access.principal import Principal
from kwire.access.principal_rules import PrincipalRules
from kwire.config.tls import CERTIFICATE_REQUESTED, CERTIFICATE_REQUIRED, TlsConfig

log = logging.getLogger("kwire.tls")

# An expiry of the server's certificate within this time is logged as a warning.
EXPIRY_WARNING_SECONDS = 14 * 24 * 3600
_VERIFY_MODES = {CERTIFICATE_REQUESTED: ssl.CERT_OPTIONAL, CERTIFICATE_REQUIRED: ssl.CERT_REQUIRED}

# What a file is recognised by: inode, size, and the times of the last changes of content and of permissions.
Stamp = tuple[int, int, int, int] | None


class LoadedContext(NamedTuple):
    """A context that can be used, and the end of validity of its certificate, in seconds since 1970."""

    config: TlsConfig
    context: ssl.SSLContext
    expires_at: int
    stamps: tuple[Stamp, ...]


class TlsListener:
    """TLS of one listener. `load` and `load_if_changed` access files, so they run in a thread; `use` runs on the loop.

    The constructor raises InvalidStore if a setting that is not a file is wrong.
    """

    def __init__(self, config: TlsConfig) -> None:
        self.name = config.listener
        self._config = config
        self._rules = _rules_of(config)
        self._loaded: LoadedContext | None = None
        # The last failure, so that the same one is not logged every few seconds.
        self._failure: tuple[tuple[Stamp, ...], str] | None = None
        self.reloads = 0
        self.failed_reloads = 0
        self.failed_handshakes = 0
        self.pending_handshakes = 0

    @property
    def context(self) -> ssl.SSLContext:
        assert self._loaded is not None
        return self._loaded.context

    @property
    def expires_at(self) -> int:
        """The end of validity of the certificate in use, in seconds since 1970."""
        assert self._loaded is not None
        return self._loaded.expires_at

    @property
    def client_auth(self) -> str:
        return self._config.client_auth

    def principal(self, ssl_object: ssl.SSLObject) -> Principal | None:
        """Return the principal of the client's certificate, or None without one. Raises ValueError.

        That is NoMatchingRule, or the certificate's subject cannot be read.
        """
        certificate = ssl_object.getpeercert(binary_form=True)
        return None if certificate is None else self._rules.principal(subject_name(certificate))

    def load(self) -> LoadedContext:
        """Build a context from the files. Raises InvalidStore."""
        return self._load(self._config)

    def load_if_changed(self) -> LoadedContext | None:
        """Build a new context if a file or the configuration has changed since the last one. Raises InvalidStore."""
        assert self._loaded is not None
        config = self._config
        if config == self._loaded.config and _stamps(config) == self._loaded.stamps:
            return None
        return self._load(config)

    def reconfigure(self, config: TlsConfig) -> None:
        """Change the settings. The next check builds a context from them."""
        self._config = config

    def use(self, loaded: LoadedContext) -> None:
        """Use this context for new connections."""
        if self._loaded is not None:
            self.reloads += 1
            log.info("listener %s: the certificates were loaded again", self.name)
        self._loaded = loaded
        self._failure = None
        left = loaded.expires_at - time()
        if left <= 0:
            log.error("listener %s: the server's certificate has expired; clients refuse it", self.name)
        elif left < EXPIRY_WARNING_SECONDS:
            log.warning("listener %s: the server's certificate expires in %.1f days", self.name, left / 86400)

    def report_failure(self, error: Exception) -> None:
        """Log and count a failed reload, once per change of the files. The context in use stays."""
        failure = (_stamps(self._config), str(error))
        if failure != self._failure:
            self._failure = failure
            self.failed_reloads += 1
            log.error("listener %s: the old certificates stay in use: %s", self.name, error)

    @staticmethod
    def _load(config: TlsConfig) -> LoadedContext:
        # The files may change while they are read. Then the stamps are outdated, and the next check reads them again.
        stamps = _stamps(config)
        material = read_key_store(config.key_store)
        context = _server_context(config)
        _load_key(context, material, config)
        try:
            expires_at = not_after(material.certificates[0])
        except ValueError as error:
            raise InvalidStore(f"{config.key_store.setting}: {error}") from None
        if config.trust_store is not None:
            _load_trusted(context, config)
        return LoadedContext(config, context, expires_at, stamps)


def _rules_of(config: TlsConfig) -> PrincipalRules:
    try:
        return PrincipalRules(config.mapping_rules)
    except ValueError as error:
        raise InvalidStore(f"listener {config.listener}: ssl.principal.mapping.rules: {error}") from None


def _stamps(config: TlsConfig) -> tuple[Stamp, ...]:
    stores = (config.key_store, config.trust_store)
    return tuple(_stamp(store.location) for store in stores if store is not None and store.location is not None)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _server_context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    has_tls12, has_tls13 = "TLSv1.2" in config.versions, "TLSv1.3" in config.versions
    if config.cipher_suites:
        try:
            selection = select_suites(config.cipher_suites)
            if selection.tls12_list:
                context.set_ciphers(selection.tls12_list)
        except (ValueError, ssl.SSLError) as error:
            raise InvalidStore(f"listener {config.listener}: ssl.cipher.suites: {error}") from None
        has_tls12, has_tls13 = has_tls12 and bool(selection.tls12_list), has_tls13 and selection.has_tls13
    if not has_tls12 and not has_tls13:
        raise InvalidStore(
            f"listener {config.listener}: ssl.cipher.suites has no suite of a version in ssl.enabled.protocols"
        )
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if has_tls12 else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if has_tls13 else ssl.TLSVersion.TLSv1_2
    context.verify_mode = _VERIFY_MODES.get(config.client_auth, ssl.CERT_NONE)
    # As in Java, every certificate of the trust store is trusted, not only self-signed ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_key(context: ssl.SSLContext, material: KeyMaterial, config: TlsConfig) -> None:
    """Load key and certificates into the context.

    SSLContext loads keys from paths only. The path is that of a file in memory, which no other user can open.
    """
    place = config.key_store.setting
    if config.key_store.location is not None:
        place += f"={config.key_store.location}"
    text = material.key + b"".join(ssl.DER_cert_to_PEM_cert(one).encode() for one in material.certificates)
    descriptor = os.memfd_create("kwire-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text)
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=material.password or "")
    except ssl.SSLError as error:
        raise InvalidStore(f"{place}: {_key_problem(error, material)}") from None
    finally:
        os.close(descriptor)


def _key_problem(error: ssl.SSLError, material: KeyMaterial) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate; put the server's own certificate first"
    if material.password is not None:
        return "the private key cannot be decrypted; ssl.key.password is wrong, or the key is damaged"
    return f"the private key or a certificate is not valid: {error.reason or error}"


def _load_trusted(context: ssl.SSLContext, config: TlsConfig) -> None:
    assert config.trust_store is not None
    certificates = read_trust_store(config.trust_store)
    try:
        context.load_verify_locations(cadata=b"".join(certificates))
    except ssl.SSLError as error:
        place = config.trust_store.setting
        if config.trust_store.location is not None:
            place += f"={config.trust_store.location}"
        raise InvalidStore(f"{place}: a certificate is not valid: {error.reason or error}") from None
