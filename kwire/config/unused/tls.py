"""Settings of TLS. They have no effect: kwire serves only PLAINTEXT listeners."""

from kwire.config.setting import Kind, one_of
from kwire.config.unused.row import PER_BROKER, PER_LISTENER, unused

TLS_SETTINGS = (
    unused("security.providers", Kind.STRING, None, "Classes that create Java security providers."),
    unused("ssl.allow.dn.changes", Kind.BOOLEAN, False, "Accept a new key store with another distinguished name."),
    unused("ssl.allow.san.changes", Kind.BOOLEAN, False, "Accept a new key store without all names of the old one."),
    unused("ssl.cipher.suites", Kind.LIST, (), "Cipher suites that are allowed.", mode=PER_BROKER),
    unused(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether clients have to present a certificate.",
        one_of("required", "requested", "none"),
        PER_BROKER,
    ),
    unused(
        "ssl.enabled.protocols",
        Kind.LIST,
        (
            "TLSv1.2",
            "TLSv1.3",
        ),
        "TLS versions that are allowed.",
        mode=PER_BROKER,
    ),
    unused(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "How a host name is checked against a certificate.",
        mode=PER_BROKER,
    ),
    unused("ssl.engine.factory.class", Kind.CLASS, None, "Class that creates TLS engines.", mode=PER_BROKER),
    unused("ssl.key.password", Kind.PASSWORD, None, "Password of the private key.", mode=PER_LISTENER),
    unused("ssl.keymanager.algorithm", Kind.STRING, "SunX509", "Algorithm of the key manager.", mode=PER_BROKER),
    unused("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "Certificate chain as PEM text.", mode=PER_LISTENER),
    unused("ssl.keystore.key", Kind.PASSWORD, None, "Private key as PEM text.", mode=PER_LISTENER),
    unused("ssl.keystore.location", Kind.STRING, None, "File of the key store.", mode=PER_LISTENER),
    unused("ssl.keystore.password", Kind.PASSWORD, None, "Password of the key store.", mode=PER_LISTENER),
    unused("ssl.keystore.type", Kind.STRING, "JKS", "Format of the key store.", mode=PER_LISTENER),
    unused("ssl.principal.mapping.rules", Kind.STRING, "DEFAULT", "Rules that map distinguished names to short names."),
    unused("ssl.protocol", Kind.STRING, "TLSv1.3", "TLS version of new contexts.", mode=PER_BROKER),
    unused("ssl.provider", Kind.STRING, None, "Java security provider.", mode=PER_BROKER),
    unused("ssl.secure.random.implementation", Kind.STRING, None, "Random number generator.", mode=PER_BROKER),
    unused("ssl.trustmanager.algorithm", Kind.STRING, "PKIX", "Algorithm of the trust manager.", mode=PER_BROKER),
    unused("ssl.truststore.certificates", Kind.PASSWORD, None, "Trusted certificates as PEM text.", mode=PER_LISTENER),
    unused("ssl.truststore.location", Kind.STRING, None, "File of the trust store.", mode=PER_LISTENER),
    unused("ssl.truststore.password", Kind.PASSWORD, None, "Password of the trust store.", mode=PER_LISTENER),
    unused("ssl.truststore.type", Kind.STRING, "JKS", "Format of the trust store.", mode=PER_LISTENER),
)
