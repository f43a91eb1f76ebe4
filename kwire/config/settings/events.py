"""Broker settings of the event store."""

from kwire.config.setting import Kind, Setting, at_least

EVENT_SETTINGS = (
    Setting(
        "kwire.events.retention.ms",
        Kind.LONG,
        -1,
        "Age at which events go from the order of all events, which subscribers of everything read; -1 keeps them for "
        "ever. What a topic keeps is its own retention.ms.",
        at_least(-1),
    ),
    Setting(
        "kwire.events.files.dir",
        Kind.STRING,
        None,
        "A directory in which every event of the event store also gets a file of its own, for people who want to look "
        "at them with ordinary tools; none if it is not set. The log stays the truth.",
    ),
)
