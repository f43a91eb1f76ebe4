"""Broker settings of the event store."""

from kwire.config.setting import Kind, Setting, at_least, begins_with

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
    Setting(
        "kwire.bridge.events.topic",
        Kind.STRING,
        "__kwire_event_journal",
        "Topic of the cluster in which a bridge stores the order of all events. It belongs to the data directory of "
        "the bridge that has used it first; of several bridges with this directory, the one that was started last "
        "serves the events. A server ignores this setting.",
        # Users of the bridge neither see nor change such topics.
        begins_with("__"),
    ),
)
