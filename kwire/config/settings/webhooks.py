"""Broker settings of webhooks."""

from kwire.config.setting import Kind, Rule, Setting, SettingValue, at_least, begins_with, between

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
            return f"{text} is not a valid port; expected numbers from 1 to {PORT_MAX}, or * for all"
    return None


def _pauses_problem(value: SettingValue) -> str | None:
    assert isinstance(value, str)
    texts = [text.strip() for text in value.split(",")] if value else []
    if len(texts) > PAUSES_MAX:
        return f"Expected at most {PAUSES_MAX} pauses"
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= PAUSE_MS_MAX):
            return f"{text} is not a valid pause; expected milliseconds from 0 to {PAUSE_MS_MAX}"
    return None


WEBHOOK_SETTINGS = (
    Setting("kwire.webhooks.enable", Kind.BOOLEAN, True, "Whether the server offers and delivers webhooks."),
    Setting(
        "kwire.webhooks.persist",
        Kind.BOOLEAN,
        True,
        "Whether webhooks and their delivery positions survive a restart; false keeps them in memory only.",
    ),
    Setting(
        "kwire.webhooks.max",
        Kind.INT,
        1000,
        "Maximum number of webhooks. The creation of another webhook is refused.",
        at_least(0),
    ),
    Setting(
        "kwire.webhooks.timeout.ms",
        Kind.INT,
        15_000,
        "Maximum time for one delivery, until the receiver has answered.",
        between(10, 600_000),
    ),
    Setting(
        "kwire.webhooks.retry.schedule.ms",
        # The kind is not LIST, because the parser of lists drops repeated entries.
        Kind.STRING,
        "5000,300000,1800000,7200000,18000000,36000000,36000000",
        "Pauses between the attempts to deliver an event, for webhooks with the policy retry. Each pause varies at "
        "random. After the last attempt the event becomes a dead letter. If the list is empty, there is one attempt.",
        Rule(f"numbers from 0 to {PAUSE_MS_MAX}, separated by commas", _pauses_problem),
    ),
    Setting(
        "kwire.webhooks.dispatch.interval.ms",
        Kind.INT,
        500,
        "Interval at which a topic's dispatcher polls for new events. Normally the topic notifies it immediately.",
        between(10, 3_600_000),
    ),
    Setting(
        "kwire.webhooks.disable.after.hours",
        Kind.LONG,
        120,
        "A webhook is disabled when all its deliveries have failed for this time; -1 never disables it.",
        Rule(
            "-1, or 1 to 87600",
            lambda value: None if value == -1 else between(1, 87_600).problem(value),
        ),
    ),
    Setting(
        "kwire.webhooks.secret.overlap.hours",
        Kind.LONG,
        24,
        "How long deliveries are signed with both the old and the new secret after a secret was replaced, unless the "
        "request says otherwise.",
        between(0, 8760),
    ),
    Setting(
        "kwire.webhooks.allow.private",
        Kind.BOOLEAN,
        False,
        "Whether webhooks may be delivered to this machine and to private networks, also over http and to any port. "
        "Cloud metadata services, link-local and multicast addresses remain blocked.",
    ),
    Setting(
        "kwire.webhooks.allow.http",
        Kind.BOOLEAN,
        False,
        "Whether webhooks may be delivered to public addresses over http, without encryption.",
    ),
    Setting(
        "kwire.webhooks.ports",
        Kind.LIST,
        ("80", "443", "8080", "8443"),
        "Ports of public addresses to which webhooks may be delivered; * allows all ports.",
        Rule(f"numbers from 1 to {PORT_MAX}, or *", _ports_problem),
    ),
    Setting(
        "kwire.webhooks.max.connections",
        Kind.INT,
        256,
        "Maximum number of connections to receivers, including idle connections kept for the next delivery.",
        between(1, 65_535),
    ),
    Setting(
        "kwire.webhooks.max.connections.per.host",
        Kind.INT,
        64,
        "Maximum number of connections to one host and port.",
        between(1, 65_535),
    ),
    Setting(
        "kwire.bridge.webhooks.topic",
        Kind.STRING,
        "__kwire_webhooks",
        "Topic of the cluster in which a bridge stores webhooks and their progress. The bridge that was started last "
        "with a topic delivers its webhooks. A server ignores this setting.",
        # Users of the bridge neither see nor change such topics.
        begins_with("__"),
    ),
)
