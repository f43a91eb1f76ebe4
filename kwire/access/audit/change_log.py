"""Administrative changes and failed logins in the server's log, whether or not the audit log records them.

The server logs what it does by itself where it does it, with the reason. So only changes by clients are logged here.
"""

import logging

from kwire.access.audit.entries import SERVER, TOPIC, AuditEntry

log = logging.getLogger("kwire.changes")
login_log = logging.getLogger("kwire.logins")

# Longer descriptions of a change are shortened.
FACTS_LENGTH_MAX = 300


def log_change(entry: AuditEntry) -> None:
    """Log a change by a client: `topic orders: created by User:alice from 10.0.0.7 (kafka), partitions=3`."""
    if entry.actor.port == SERVER or _is_internal(entry) or not log.isEnabledFor(logging.INFO):
        return
    noun, _, verb = entry.type.partition(".")
    principal, host, port = entry.actor
    facts = "".join(f", {name}={_shown(value)}" for name, value in entry.facts.items() if value not in ((), [], {}))
    if len(facts) > FACTS_LENGTH_MAX:
        facts = facts[:FACTS_LENGTH_MAX] + "…"
    log.info(
        "%s %s: %s by %s from %s (%s)%s", noun, entry.resource, verb.replace("_", " "), principal, host, port, facts
    )


def log_failed_login(name: str | None, host: str, port: str, mechanism: str, reason: str) -> None:
    """Log a failed login. `name` is None if the user does not exist: the given name may be a password."""
    shown = "of an unknown user" if name is None else f"of user {name!r}"
    login_log.warning("login %s failed: client %s (%s, %s): %s", shown, host, port, mechanism, reason)


def _is_internal(entry: AuditEntry) -> bool:
    """Return whether the change is that of an internal topic, which the server creates when a client first needs it."""
    return entry.resource_type == TOPIC and entry.resource.startswith("__")


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
