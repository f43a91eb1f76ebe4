"""Broker settings of the event store."""

from kwire.config.setting import Kind, Setting, at_least

EVENT_SETTINGS = (
    Setting(
        "kwire.events.retention.ms",
        Kind.LONG,
        -1,
        "Age at which events are deleted from the global event log (__events), which subscribers to all events read; "
        "-1 keeps them forever. The retention of each topic is its own retention.ms.",
        at_least(-1),
    ),
    Setting(
        "kwire.events.files.dir",
        Kind.STRING,
        None,
        "Directory in which each event of the event store is also written to a file of its own, so that events can be "
        "read with ordinary tools. If it is not set, no files are written. The log remains authoritative.",
    ),
)
