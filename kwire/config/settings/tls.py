"""Broker settings of TLS. Names that start with `ssl.` can be set for one listener: `listener.name.NAME.ssl.…`."""

from kwire.config.setting import Kind, Rule, Setting, SettingValue, one_of

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _versions_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    if value and all(one in TLS_VERSIONS for one in value):
        return None
    return f"Entries must be {' or '.join(TLS_VERSIONS)}; older versions are not secure and not supported"


ENABLED_VERSIONS = Rule(f"{' or '.join(TLS_VERSIONS)}, or both", _versions_problem)


def _per_broker(name: str, kind: Kind, default: SettingValue, documentation: str, rule: Rule | None = None) -> Setting:
    return Setting(name, kind, default, documentation, rule, is_dynamic=True, is_per_broker=True)


def _per_listener(name: str, kind: Kind, default: SettingValue, documentation: str) -> Setting:
    return Setting(name, kind, default, documentation, is_dynamic=True, is_per_broker=True, is_per_listener=True)


TLS_SETTINGS = (
    _per_listener(
        "ssl.keystore.type",
        Kind.STRING,
        "JKS",
        "Format of the key store: PEM or PKCS12. Java's own format JKS is not supported, but as in Java a PKCS#12 file "
        "is accepted under that name.",
    ),
    _per_listener(
        "ssl.keystore.location",
        Kind.STRING,
        None,
        "File with the server's private key and certificate chain. It is loaded again when it changes.",
    ),
    _per_listener("ssl.keystore.password", Kind.PASSWORD, None, "Password of a PKCS#12 key store."),
    _per_listener(
        "ssl.keystore.key", Kind.PASSWORD, None, "Private key as PEM text, instead of ssl.keystore.location."
    ),
    _per_listener(
        "ssl.keystore.certificate.chain",
        Kind.PASSWORD,
        None,
        "Certificate chain as PEM text, the server's own certificate first; with ssl.keystore.key.",
    ),
    _per_listener("ssl.key.password", Kind.PASSWORD, None, "Password of the private key, if it is encrypted."),
    _per_listener("ssl.truststore.type", Kind.STRING, "JKS", "Format of the trust store: PEM or PKCS12."),
    _per_listener(
        "ssl.truststore.location",
        Kind.STRING,
        None,
        "File with the certificates that may sign client certificates. It is loaded again when it changes.",
    ),
    _per_listener("ssl.truststore.password", Kind.PASSWORD, None, "Password of a PKCS#12 trust store."),
    _per_listener(
        "ssl.truststore.certificates",
        Kind.PASSWORD,
        None,
        "Trusted certificates as PEM text, instead of ssl.truststore.location.",
    ),
    _per_broker(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Client certificates: none, requested (a client may do without) or required. As in Kafka, a SASL_SSL listener "
        "uses only the value with its own prefix (listener.name.NAME.ssl.client.auth).",
        one_of("required", "requested", "none"),
    ),
    _per_broker(
        "ssl.enabled.protocols",
        Kind.LIST,
        TLS_VERSIONS,
        "TLS versions that are allowed: TLSv1.2, TLSv1.3.",
        ENABLED_VERSIONS,
    ),
    _per_broker(
        "ssl.protocol",
        Kind.STRING,
        "TLSv1.3",
        "TLS version of Java's context. It is checked, but ssl.enabled.protocols decides.",
        one_of("TLS", *TLS_VERSIONS),
    ),
    _per_broker(
        "ssl.cipher.suites",
        Kind.LIST,
        (),
        "Cipher suites that are allowed, by IANA name or by OpenSSL's name; by default OpenSSL's secure ones. Of the "
        "suites of TLS 1.3, name all three or none; without them TLS 1.3 is not used.",
    ),
    Setting(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "Rules that map the subject of a client certificate to the name of its principal: DEFAULT (the whole subject), "
        "or RULE:pattern/replacement/ with L or U after it for lower or upper case. The first rule that matches wins.",
    ),
    Setting(
        "kwire.http.tls",
        Kind.BOOLEAN,
        False,
        "Serve https on the HTTP port, with the ssl. settings; those with the prefix listener.name.http. win.",
    ),
)
