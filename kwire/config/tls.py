"""The configuration of TLS of one listener. Settings with the prefix of the listener win over the common ones."""

from collections.abc import Callable
from typing import NamedTuple

from kwire.config.listeners import Listener
from kwire.config.setting import InvalidConfig
from kwire.config.settings.per_listener import LISTENER_PREFIX
from kwire.config.values import Values

# The listener name of the HTTP port in names of settings.
HTTP_LISTENER = "http"
PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
STORE_TYPES = (PEM, PKCS12, JKS)
NO_CERTIFICATE, CERTIFICATE_REQUESTED, CERTIFICATE_REQUIRED = "none", "requested", "required"


class StoreConfig(NamedTuple):
    """A key store or a trust store. `setting` is the full name of the setting that an error message names.

    Of a key store, `inline_key` and `inline_certificates` are PEM text; of a trust store, the latter.
    """

    setting: str
    type: str
    location: str | None
    password: str | None
    key_password: str | None
    inline_key: str | None
    inline_certificates: str | None

    def __repr__(self) -> str:
        # Passwords and keys stay out of logs.
        return f"StoreConfig({self.setting}, {self.type}, {self.location})"


class TlsConfig(NamedTuple):
    """The settings of TLS of one listener."""

    listener: str
    key_store: StoreConfig
    trust_store: StoreConfig | None
    client_auth: str
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping_rules: str

    @property
    def authenticates(self) -> bool:
        """Whether every client is authenticated by its certificate."""
        return self.client_auth == CERTIFICATE_REQUIRED


def tls_config(values: Values, listener: str, *, has_sasl: bool = False) -> TlsConfig:
    """Return the settings of a listener. Raises InvalidConfig if they contradict each other."""

    def named(name: str) -> str:
        return values.name_for_listener(listener, name)

    client_auth_name = named("ssl.client.auth")
    client_auth = values.string(client_auth_name)
    if has_sasl and not client_auth_name.startswith(LISTENER_PREFIX):
        client_auth = NO_CERTIFICATE
    key_store = _key_store(values, listener, named)
    trust_store = _trust_store(values, named)
    if client_auth != NO_CERTIFICATE and trust_store is None:
        raise InvalidConfig(
            f"listener {listener}: {client_auth_name}={client_auth} needs the certificates that sign those of clients; "
            "set ssl.truststore.location with ssl.truststore.type=PEM, or ssl.truststore.certificates"
        )
    return TlsConfig(
        listener=listener,
        key_store=key_store,
        trust_store=trust_store,
        client_auth=client_auth,
        versions=values.strings(named("ssl.enabled.protocols")),
        cipher_suites=values.strings(named("ssl.cipher.suites")),
        mapping_rules=values.string(named("ssl.principal.mapping.rules")),
    )


def listener_tls(values: Values, listeners: tuple[Listener, ...]) -> dict[str, TlsConfig]:
    """Return the settings of every Kafka listener with TLS, by its name."""
    return {one.name: tls_config(values, one.name, has_sasl=one.has_sasl) for one in listeners if one.has_tls}


def _key_store(values: Values, listener: str, named: Callable[[str], str]) -> StoreConfig:
    store = StoreConfig(
        setting=named("ssl.keystore.location"),
        type=_store_type(values, named("ssl.keystore.type")),
        location=values.string_or_none(named("ssl.keystore.location")) or None,
        password=values.string_or_none(named("ssl.keystore.password")),
        key_password=values.string_or_none(named("ssl.key.password")),
        inline_key=values.string_or_none(named("ssl.keystore.key")),
        inline_certificates=values.string_or_none(named("ssl.keystore.certificate.chain")),
    )
    if store.inline_key is None and store.inline_certificates is None:
        if store.location is None:
            raise InvalidConfig(
                f"listener {listener}: TLS needs a private key and a certificate; set ssl.keystore.location with "
                "ssl.keystore.type=PEM or PKCS12 (kwire tls init makes certificates for development)"
            )
        if store.type == PEM and store.password is not None:
            raise InvalidConfig(
                f"listener {listener}: ssl.keystore.password is for PKCS#12; with ssl.keystore.type=PEM the password "
                "of the private key is ssl.key.password"
            )
        return store
    _check_inline(store, listener, "ssl.keystore.key", "ssl.keystore.type")
    if store.inline_key is None or store.inline_certificates is None:
        raise InvalidConfig(
            f"listener {listener}: ssl.keystore.key and ssl.keystore.certificate.chain must be set together"
        )
    return store._replace(setting=named("ssl.keystore.key"))


def _trust_store(values: Values, named: Callable[[str], str]) -> StoreConfig | None:
    store = StoreConfig(
        setting=named("ssl.truststore.location"),
        type=_store_type(values, named("ssl.truststore.type")),
        location=values.string_or_none(named("ssl.truststore.location")) or None,
        password=values.string_or_none(named("ssl.truststore.password")),
        key_password=None,
        inline_key=None,
        inline_certificates=values.string_or_none(named("ssl.truststore.certificates")),
    )
    if store.inline_certificates is None:
        return store if store.location is not None else None
    _check_inline(store, "trust store", "ssl.truststore.certificates", "ssl.truststore.type")
    return store._replace(setting=named("ssl.truststore.certificates"))


def _check_inline(store: StoreConfig, listener: str, name: str, type_name: str) -> None:
    if store.location is not None:
        raise InvalidConfig(f"{listener}: {store.setting} and {name} are both set; remove one of them")
    if store.type != PEM:
        raise InvalidConfig(f"{listener}: {name} is PEM text, but {type_name} is {store.type}; set {type_name}=PEM")


def _store_type(values: Values, name: str) -> str:
    text = values.string(name).upper()
    if text not in STORE_TYPES:
        raise InvalidConfig(values.refusal(name, "Expected PEM or PKCS12"))
    return text
