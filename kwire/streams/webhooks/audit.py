"""The entries of webhooks in the audit log: their changes and failures.

The event types are webhook.registered, webhook.changed, webhook.removed, webhook.paused, webhook.resumed,
webhook.disabled, webhook.failed (an event became a dead letter) and webhook.gap (events could not be read).

Webhooks may deliver the events of the audit log. Dead letters and gaps of these deliveries are not recorded. Otherwise
two failing webhooks would trigger each other forever.
"""

from kwire.access.audit.change_log import log_change
from kwire.access.audit.entries import SUCCESS, THE_SERVER, WEBHOOK, Audit, AuditEntry, current_actor
from kwire.streams.webhooks.definition import Definition


class WebhookAudit:
    """Records what happens to webhooks."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def changed(self, what: str, definition: Definition, **facts: object) -> None:
        """Record a change that the client of the current request has made."""
        log_change(self._record(AuditEntry(what, current_actor(), SUCCESS), definition, facts))

    def happened(self, what: str, definition: Definition, **facts: object) -> None:
        """Record what the server has done by itself, for example because a delivery failed. The caller logs it."""
        self._record(AuditEntry(what, THE_SERVER, SUCCESS), definition, facts)

    def _record(self, entry: AuditEntry, definition: Definition, facts: dict[str, object]) -> AuditEntry:
        fields: dict[str, object] = {
            "webhook": definition.webhook_id,
            "url": definition.url_without_query,
            "policy": definition.policy,
            "topics": sorted(definition.topics),
            "creator": str(definition.creator),
            **facts,
        }
        entry = entry._replace(resource_type=WEBHOOK, resource=definition.webhook_id, facts=fields)
        self._audit.record(entry)
        return entry
