"""Settings of SASL/OAUTHBEARER. They have no effect: kwire serves only PLAINTEXT listeners."""

from kwire.config.setting import Kind, between
from kwire.config.unused.row import unused

OAUTHBEARER_SETTINGS = (
    unused("sasl.oauthbearer.assertion.algorithm", Kind.STRING, "RS256", "Algorithm that signs assertions."),
    unused("sasl.oauthbearer.assertion.claim.aud", Kind.STRING, None, "Audience claim of assertions."),
    unused(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Kind.INT,
        300,
        "Seconds after which an assertion expires.",
        between(0, 86400),
    ),
    unused("sasl.oauthbearer.assertion.claim.iss", Kind.STRING, None, "Issuer claim of assertions."),
    unused("sasl.oauthbearer.assertion.claim.jti.include", Kind.BOOLEAN, False, "Give each assertion an id."),
    unused(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Kind.INT,
        60,
        "Seconds before now from which an assertion is valid.",
        between(0, 3600),
    ),
    unused("sasl.oauthbearer.assertion.claim.sub", Kind.STRING, None, "Subject claim of assertions."),
    unused("sasl.oauthbearer.assertion.file", Kind.STRING, None, "File with a ready assertion."),
    unused(
        "sasl.oauthbearer.assertion.private.key.file", Kind.STRING, None, "File with the key that signs assertions."
    ),
    unused(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        Kind.PASSWORD,
        None,
        "Passphrase of the key that signs assertions.",
    ),
    unused(
        "sasl.oauthbearer.assertion.template.file", Kind.STRING, None, "File with headers and claims of assertions."
    ),
    unused(
        "sasl.oauthbearer.client.credentials.client.id", Kind.STRING, None, "Client id of the client credentials grant."
    ),
    unused(
        "sasl.oauthbearer.client.credentials.client.secret",
        Kind.PASSWORD,
        None,
        "Client secret of the client credentials grant.",
    ),
    unused("sasl.oauthbearer.clock.skew.seconds", Kind.INT, 30, "Difference of clocks that is tolerated."),
    unused("sasl.oauthbearer.expected.audience", Kind.LIST, (), "Audiences of which a token has to name one."),
    unused("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Issuer that a token has to name."),
    unused("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, 3600000, "Interval between reads of the key set."),
    unused(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Kind.LONG,
        10000,
        "Longest pause between two attempts to read the key set.",
    ),
    unused(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        Kind.LONG,
        100,
        "First pause between two attempts to read the key set.",
    ),
    unused("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING, None, "Address of the key set."),
    unused(
        "sasl.oauthbearer.jwt.retriever.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Class that obtains tokens.",
    ),
    unused(
        "sasl.oauthbearer.jwt.validator.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Class that checks tokens.",
    ),
    unused("sasl.oauthbearer.scope", Kind.STRING, None, "Scope that is requested."),
    unused("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope", "Name of the scope claim."),
    unused("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "Name of the subject claim."),
    unused("sasl.oauthbearer.token.endpoint.url", Kind.STRING, None, "Address that issues tokens."),
)
