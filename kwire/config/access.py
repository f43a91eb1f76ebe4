"""The configuration sections of access: authorizer, super users and keys for stored secrets; and of the audit log."""

from typing import NamedTuple

from kwire.config.setting import InvalidConfig
from kwire.config.settings.access import ACL_AUTHORIZER, PASSWORD_LENGTH_MIN
from kwire.config.settings.audit import AUDIT_ALL, AUDIT_AUTO, AUDIT_CHANGES, AUDIT_NONE
from kwire.config.values import Values


class AccessConfig(NamedTuple):
    """Settings of access. `super_users` are principals such as `User:alice`.

    `key_file` has the keys for stored secrets. If it is None, the file is in the first data directory.
    """

    has_acls: bool
    super_users: tuple[str, ...]
    is_default_allowed: bool
    password_length_min: int
    key_file: str | None


def access_config(values: Values) -> AccessConfig:
    super_users = tuple(filter(None, (one.strip() for one in values.string("super.users").split(";"))))
    for one in super_users:
        kind, colon, name = one.partition(":")
        if not (kind and colon and name):
            raise InvalidConfig(
                values.refusal("super.users", f"Expected User:NAME, separated by semicolons, got {one}")
            )
    return AccessConfig(
        has_acls=values.string("kwire.authorizer") == ACL_AUTHORIZER or bool(values.string("authorizer.class.name")),
        super_users=super_users,
        is_default_allowed=values.flag("allow.everyone.if.no.acl.found"),
        password_length_min=values.number(PASSWORD_LENGTH_MIN),
        key_file=values.string("kwire.secrets.key.file") or None,
    )


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
