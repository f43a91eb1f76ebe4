"""Broker settings of the authorizer."""

from kwire.config.setting import Kind, Setting, one_of

KAFKA_AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
NO_AUTHORIZER, ACL_AUTHORIZER = "none", "acl"

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
)
