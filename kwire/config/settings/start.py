"""Broker settings that control the start of a server."""

from kwire.config.setting import Kind, Setting

START_SETTINGS = (
    Setting(
        "kwire.start.empty",
        Kind.BOOLEAN,
        False,
        "Start even if the data directory contains partition directories that the catalogue does not list, or a "
        "damaged catalogue: they are moved to set-aside-TIME inside the data directory. If false, the server refuses "
        "to start in these cases. In all other cases the setting has no effect.",
    ),
)
