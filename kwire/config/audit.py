"""The configuration section of the audit log."""

from typing import NamedTuple

from kwire.config.settings.audit import AUDIT_ALL, AUDIT_AUTO, AUDIT_CHANGES, AUDIT_NONE
from kwire.config.values import Values


class AuditConfig(NamedTuple):
    """Settings of the audit log: which entries it records, and how long it keeps them."""

    has_webhooks: bool
    has_changes: bool
    has_refusals: bool
    retention_ms: int


def audit_config(values: Values, *, is_access_controlled: bool) -> AuditConfig:
    """`is_access_controlled` is True if clients authenticate, or an authorizer is configured."""
    level = values.string("kwire.audit")
    if level == AUDIT_AUTO and is_access_controlled:
        level = AUDIT_ALL
    return AuditConfig(
        has_webhooks=level != AUDIT_NONE,
        has_changes=level in (AUDIT_ALL, AUDIT_CHANGES),
        has_refusals=level == AUDIT_ALL,
        retention_ms=values.number("kwire.audit.retention.ms"),
    )
