"""Broker settings that decide how a server starts."""

from kwire.config.setting import Kind, Setting

START_SETTINGS = (
    Setting(
        "kwire.start.empty",
        Kind.BOOLEAN,
        False,
        "Start although partition folders, or a damaged catalogue, were found that would make the server refuse: they "
        "are moved to set-aside-TIME inside the data directory. Without such a finding it has no effect.",
    ),
)
