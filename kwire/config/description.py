"""The description of a setting in DescribeConfigs, and the descriptions of the broker's settings.

The settings of other resources (topics, groups, client metrics) are described by ``kwire/config/resources``.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from kwire.config.setting import ConfigSource, Kind, Setting
from kwire.config.tree import Config
from kwire.config.values import Value

# Groups of settings that set the same value in different units, in order of precedence.
UNIT_VARIANTS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_NAMES_FOR = {
    **{name: names for names in UNIT_VARIANTS for name in names},
    # `log.flush.interval.ms` falls back to the scheduler interval. The scheduler interval has no fallback.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class ResourceType(IntEnum):
    """The types of resources that have settings, numbered as in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSynonym(NamedTuple):
    """One source of a value, as DescribeConfigs lists it."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """The description of one setting in DescribeConfigs. A sensitive value is None. The kind is None if unknown."""

    name: str
    value: str | None
    source: ConfigSource
    kind: Kind | None
    is_sensitive: bool
    is_read_only: bool
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_broker(config: Config) -> Iterator[ConfigEntry]:
    """Describe every setting of this broker, sorted by name. Unknown settings that were given are included."""
    for name in sorted(config.values):
        value = config.values[name]
        names = _NAMES_FOR.get(name, (name,))
        given = list(config.values.candidates(*names))
        while given and given[0].setting.name != name:
            del given[0]  # a unit variant that takes precedence is not listed as a synonym of this setting
        yield _entry(value.setting, value.text, broker_synonyms(given))


def describe_all_brokers(config: Config) -> Iterator[ConfigEntry]:
    """Describe the settings that were changed for all brokers of the cluster, sorted by name."""
    for value in sorted(config.values.of_all_brokers(), key=lambda value: value.setting.name):
        yield _entry(value.setting, value.text, broker_synonyms([value]))


def broker_synonyms(values: Iterable[Value]) -> tuple[ConfigSynonym, ...]:
    return tuple(
        ConfigSynonym(one.setting.name, None if one.setting.is_sensitive else one.text, one.config_source)
        for one in values
    )


def _entry(setting: Setting, text: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    return ConfigEntry(
        name=setting.name,
        value=None if setting.is_sensitive else text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        kind=setting.kind,
        is_sensitive=setting.is_sensitive,
        is_read_only=not setting.is_dynamic,
        documentation=setting.description,
        synonyms=synonyms,
    )
