"""Settings of TLS that have no effect: those of Java's security providers, and of clients that a broker connects to."""

from kwire.config.setting import Kind
from kwire.config.unused.row import PER_BROKER, unused

UNUSED_TLS_SETTINGS = (
    unused("security.providers", Kind.STRING, None, "Classes that create Java security providers."),
    unused("ssl.allow.dn.changes", Kind.BOOLEAN, False, "Accept a new key store with another distinguished name."),
    unused("ssl.allow.san.changes", Kind.BOOLEAN, False, "Accept a new key store without all names of the old one."),
    unused(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "How a host name is checked against a certificate.",
        mode=PER_BROKER,
    ),
    unused("ssl.engine.factory.class", Kind.CLASS, None, "Class that creates TLS engines.", mode=PER_BROKER),
    unused("ssl.keymanager.algorithm", Kind.STRING, "SunX509", "Algorithm of the key manager.", mode=PER_BROKER),
    unused("ssl.provider", Kind.STRING, None, "Java security provider.", mode=PER_BROKER),
    unused("ssl.secure.random.implementation", Kind.STRING, None, "Random number generator.", mode=PER_BROKER),
    unused("ssl.trustmanager.algorithm", Kind.STRING, "PKIX", "Algorithm of the trust manager.", mode=PER_BROKER),
)
