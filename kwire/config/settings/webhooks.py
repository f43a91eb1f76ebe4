"""Broker settings of webhooks."""

from kwire.config.setting import Kind, Rule, Setting, SettingValue, at_least, between

PORT_MAX = 65535
ALL_PORTS = "*"
PAUSES_MAX = 50
PAUSE_MS_MAX = 30 * 24 * 3_600_000


def _ports_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    if value == (ALL_PORTS,):
        return None
    for text in value:
        if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= PORT_MAX):
            return f"{text} is no port; expected numbers from 1 to {PORT_MAX}, or * for all"
    return None


def _pauses_problem(value: SettingValue) -> str | None:
    assert isinstance(value, str)
    texts = [text.strip() for text in value.split(",")] if value else []
    if len(texts) > PAUSES_MAX:
        return f"No more than {PAUSES_MAX} pauses"
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= PAUSE_MS_MAX):
            return f"{text} is no pause; expected milliseconds from 0 to {PAUSE_MS_MAX}"
    return None


WEBHOOK_SETTINGS = (
    Setting("kwire.webhooks.enable", Kind.BOOLEAN, True, "Whether webhooks are served and delivered."),
    Setting(
        "kwire.webhooks.persist",
        Kind.BOOLEAN,
        True,
        "Whether webhooks and how far each one is survive a restart; false keeps them in memory only.",
    ),
    Setting("kwire.webhooks.max", Kind.INT, 1000, "Most webhooks; one more is refused.", at_least(0)),
    Setting(
        "kwire.webhooks.timeout.ms",
        Kind.INT,
        15_000,
        "How long one delivery may take until its receiver has answered.",
        between(10, 600_000),
    ),
    Setting(
        "kwire.webhooks.retry.schedule.ms",
        # No list: entries of a list that are equal count once.
        Kind.STRING,
        "5000,300000,1800000,7200000,18000000,36000000,36000000",
        "Pauses between the attempts to deliver an event, for webhooks with the policy retry; chance varies each. "
        "After the last one the event is a dead letter. Empty: one attempt.",
        Rule(f"numbers from 0 to {PAUSE_MS_MAX}, separated by commas", _pauses_problem),
    ),
    Setting(
        "kwire.webhooks.dispatch.interval.ms",
        Kind.INT,
        500,
        "How often a topic's dispatcher looks for new events by itself; usually the topic tells it at once.",
        between(10, 3_600_000),
    ),
    Setting(
        "kwire.webhooks.disable.after.hours",
        Kind.LONG,
        120,
        "A webhook of which every delivery has failed for so long is disabled; -1 never.",
        Rule(
            "-1, or 1 to 87600",
            lambda value: None if value == -1 else between(1, 87_600).problem(value),
        ),
    ),
    Setting(
        "kwire.webhooks.secret.overlap.hours",
        Kind.LONG,
        24,
        "How long a secret that was replaced still signs beside the new one, unless the request says otherwise.",
        between(0, 8760),
    ),
    Setting(
        "kwire.webhooks.allow.private",
        Kind.BOOLEAN,
        False,
        "Whether webhooks may go to this machine and to private networks, over http and to any port as well. Metadata "
        "services of clouds, link-local and multicast addresses stay closed.",
    ),
    Setting(
        "kwire.webhooks.allow.http",
        Kind.BOOLEAN,
        False,
        "Whether webhooks may go to public addresses over http, without encryption.",
    ),
    Setting(
        "kwire.webhooks.ports",
        Kind.LIST,
        ("80", "443", "8080", "8443"),
        "Ports of public addresses that webhooks may go to; * is all.",
        Rule(f"numbers from 1 to {PORT_MAX}, or *", _ports_problem),
    ),
    Setting(
        "kwire.webhooks.max.connections",
        Kind.INT,
        256,
        "Most connections to receivers at a time, those that are kept for the next delivery included.",
        between(1, 65_535),
    ),
    Setting(
        "kwire.webhooks.max.connections.per.host",
        Kind.INT,
        64,
        "Most of them to one host and port.",
        between(1, 65_535),
    ),
)
