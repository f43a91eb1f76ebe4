"""Settings of SASL that have no effect: Kerberos, delegation tokens, and the client side of brokers."""

from kwire.config.setting import Kind, at_least
from kwire.config.unused.row import PER_BROKER, unused

SASL_SETTINGS = (
    unused(
        "delegation.token.expiry.check.interval.ms",
        Kind.LONG,
        3600000,
        "Interval between checks for expired delegation tokens.",
        at_least(1),
    ),
    unused(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        86400000,
        "Time after which a delegation token has to be renewed.",
        at_least(1),
    ),
    unused(
        "delegation.token.max.lifetime.ms", Kind.LONG, 604800000, "Longest life of a delegation token.", at_least(1)
    ),
    unused("delegation.token.secret.key", Kind.PASSWORD, None, "Key that signs delegation tokens."),
    unused("sasl.client.callback.handler.class", Kind.CLASS, None, "Class of the callback handler of SASL clients."),
    unused("sasl.jaas.config", Kind.PASSWORD, None, "JAAS login configuration.", mode=PER_BROKER),
    unused("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", "Path of kinit.", mode=PER_BROKER),
    unused(
        "sasl.kerberos.min.time.before.relogin", Kind.LONG, 60000, "Minimum time between two logins.", mode=PER_BROKER
    ),
    unused(
        "sasl.kerberos.principal.to.local.rules",
        Kind.LIST,
        ("DEFAULT",),
        "Rules that map principals to short names.",
        mode=PER_BROKER,
    ),
    unused("sasl.kerberos.service.name", Kind.STRING, None, "Kerberos principal name of the broker.", mode=PER_BROKER),
    unused(
        "sasl.kerberos.ticket.renew.jitter",
        Kind.DOUBLE,
        0.05,
        "Random share added to the renewal time.",
        mode=PER_BROKER,
    ),
    unused(
        "sasl.kerberos.ticket.renew.window.factor",
        Kind.DOUBLE,
        0.8,
        "Share of a ticket's life after which it is renewed.",
        mode=PER_BROKER,
    ),
    unused("sasl.login.callback.handler.class", Kind.CLASS, None, "Class of the callback handler of the login."),
    unused("sasl.login.class", Kind.CLASS, None, "Class that performs the login."),
    unused("sasl.login.connect.timeout.ms", Kind.INT, None, "Longest time to connect to the identity provider."),
    unused("sasl.login.read.timeout.ms", Kind.INT, None, "Longest time to read from the identity provider."),
    unused(
        "sasl.login.refresh.buffer.seconds",
        Kind.SHORT,
        300,
        "Time before expiry in which a credential is refreshed.",
        mode=PER_BROKER,
    ),
    unused(
        "sasl.login.refresh.min.period.seconds",
        Kind.SHORT,
        60,
        "Minimum time between two refreshes of a credential.",
        mode=PER_BROKER,
    ),
    unused(
        "sasl.login.refresh.window.factor",
        Kind.DOUBLE,
        0.8,
        "Share of a credential's life after which it is refreshed.",
        mode=PER_BROKER,
    ),
    unused(
        "sasl.login.refresh.window.jitter",
        Kind.DOUBLE,
        0.05,
        "Random share added to the refresh time.",
        mode=PER_BROKER,
    ),
    unused("sasl.login.retry.backoff.max.ms", Kind.LONG, 10000, "Longest pause between two attempts to log in."),
    unused("sasl.login.retry.backoff.ms", Kind.LONG, 100, "First pause between two attempts to log in."),
    unused(
        "sasl.mechanism.controller.protocol", Kind.STRING, "GSSAPI", "SASL mechanism between brokers and controllers."
    ),
    unused(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "SASL mechanism between brokers.",
        mode=PER_BROKER,
    ),
    unused("sasl.server.callback.handler.class", Kind.CLASS, None, "Class of the callback handler of the server."),
)
