"""Configuration. At start, ``load`` reads defaults, ``server.properties`` and YAML files, the environment and flags.

``load`` returns an immutable tree of typed sections (`tree`). ``settings/`` has the tables of all settings.
"""

from kwire.config.http_api import RestGroupsConfig, RoomsConfig, StreamsConfig, WebConfig
from kwire.config.listeners import Address, Listener
from kwire.config.setting import INT_MAX, LONG_MAX, ConfigSource, InvalidConfig, Kind, Setting, SettingValue
from kwire.config.settings.broker import SETTINGS
from kwire.config.sources import Source
from kwire.config.tree import Config, GroupsConfig, LogConfig, NetworkConfig, TopicsConfig, load
from kwire.config.values import Value, Values
from kwire.config.webhooks import WebhooksConfig

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "SETTINGS",
    "Address",
    "Config",
    "ConfigSource",
    "GroupsConfig",
    "InvalidConfig",
    "Kind",
    "Listener",
    "LogConfig",
    "NetworkConfig",
    "RestGroupsConfig",
    "RoomsConfig",
    "Setting",
    "SettingValue",
    "Source",
    "StreamsConfig",
    "TopicsConfig",
    "Value",
    "Values",
    "WebConfig",
    "WebhooksConfig",
    "load",
]
