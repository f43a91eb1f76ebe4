"""Settings that can be set for one listener, with Kafka's prefix `listener.name.NAME.` and the name in lower case."""

import re
from dataclasses import replace

from kwire.config.setting import Setting
from kwire.config.settings.broker import SETTINGS
from kwire.config.settings.tls import TLS_SETTINGS

LISTENER_PREFIX = "listener.name."
_TLS = (setting.name for setting in TLS_SETTINGS if setting.name.startswith("ssl."))
PER_LISTENER = frozenset(
    ("connections.max.reauth.ms", "max.connection.creation.rate", "max.connections", "sasl.enabled.mechanisms", *_TLS)
)

_PREFIXED = re.compile(re.escape(LISTENER_PREFIX) + r"[a-z0-9_-]+\.(?P<name>.+)")


def prefixed_name(listener: str, name: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{name}"


def prefixed_setting(name: str) -> Setting | None:
    """Return the setting of one listener with this prefixed name, or None if there is none."""
    match = _PREFIXED.fullmatch(name)
    if match is None or match["name"] not in PER_LISTENER:
        return None
    return replace(SETTINGS[match["name"]], name=name, is_dynamic=False, is_per_broker=False)
