"""Broker settings of the audit log."""

from kwire.config.setting import LONG_MAX, Kind, Setting, between, one_of

AUDIT_AUTO, AUDIT_ALL, AUDIT_CHANGES, AUDIT_NONE = "auto", "all", "changes", "none"
_YEAR_MS = 365 * 24 * 3_600_000

AUDIT_SETTINGS = (
    Setting(
        "kwire.audit",
        Kind.STRING,
        AUDIT_AUTO,
        "What the topic kwire-audit records. all: logins, refusals and administrative changes. changes: logins and "
        "administrative changes. none: nothing. auto: all if a listener authenticates clients or an authorizer is "
        "configured, else only the events of webhooks.",
        one_of(AUDIT_AUTO, AUDIT_ALL, AUDIT_CHANGES, AUDIT_NONE),
    ),
    Setting(
        "kwire.audit.retention.ms",
        Kind.LONG,
        _YEAR_MS,
        "How long the topic kwire-audit keeps its records. -1: forever.",
        between(-1, LONG_MAX),
    ),
)
