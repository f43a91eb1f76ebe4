"""Broker settings of SASL."""

from kwire.config.setting import Kind, Setting, at_least

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

SASL_SETTINGS = (
    Setting(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        SASL_MECHANISMS,
        "SASL mechanisms that listeners with SASL offer. kwire has PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and by "
        "default offers all of them. Kafka's default is GSSAPI, which kwire does not have. A change applies to new "
        "connections. listener.name.NAME.sasl.enabled.mechanisms sets the mechanisms of one listener.",
        is_dynamic=True,
        is_per_broker=True,
    ),
    Setting(
        "connections.max.reauth.ms",
        Kind.LONG,
        0,
        "Time after which a client on a listener with SASL must have authenticated again. A client that has not is "
        "disconnected at its next request. 0 means that it need not. listener.name.NAME.connections.max.reauth.ms sets "
        "the time of one listener.",
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        100,
        "A client that failed to authenticate receives the error, and is disconnected, after this time.",
        at_least(0),
    ),
    Setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        524288,
        "Maximum size of a request on a listener with SASL until the client has authenticated.",
        at_least(1),
    ),
)
