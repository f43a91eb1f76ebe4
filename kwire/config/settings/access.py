"""Broker settings of the authorizer, and of the keys for stored secrets."""

from kwire.config.setting import Kind, Setting, between, one_of

KAFKA_AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
NO_AUTHORIZER, ACL_AUTHORIZER = "none", "acl"
PASSWORD_LENGTH_MIN = "kwire.password.length.min"
PASSWORD_LENGTH_MIN_DEFAULT = 8
# Longer values would refuse passwords that password managers make.
PASSWORD_LENGTH_MIN_MAX = 64

ACCESS_SETTINGS = (
    Setting(
        "authorizer.class.name",
        Kind.STRING,
        "",
        "The name of one of Kafka's authorizers turns authorization by ACLs on, as kwire.authorizer=acl does.",
        one_of("", *KAFKA_AUTHORIZERS),
    ),
    Setting(
        "kwire.authorizer",
        Kind.STRING,
        NO_AUTHORIZER,
        "acl: clients may do only what ACLs allow. none: every client that can connect may do everything.",
        one_of(NO_AUTHORIZER, ACL_AUTHORIZER),
    ),
    Setting(
        "super.users",
        Kind.STRING,
        "",
        "Principals that may do everything, separated by semicolons: User:alice;User:bob.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        Kind.BOOLEAN,
        False,
        "Whether resources without any ACL are open to every client. By default only super users may use them.",
    ),
    Setting(
        PASSWORD_LENGTH_MIN,
        Kind.INT,
        PASSWORD_LENGTH_MIN_DEFAULT,
        "Minimum number of characters of a password that is set with kwire user or over HTTP. Existing passwords are "
        "not affected. Kafka's tools send salted passwords, whose length the server cannot know.",
        between(1, PASSWORD_LENGTH_MIN_MAX),
    ),
)

SECRETS_SETTINGS = (
    Setting(
        "kwire.secrets.key.file",
        Kind.STRING,
        "",
        "File with the keys that encrypt the secrets of webhooks in the metadata store. By default it is secrets.key "
        "in the first data directory. It is created when it is first needed, but never while stored secrets need a "
        "key that is missing.",
    ),
)
