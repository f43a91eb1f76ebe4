"""A setting as DescribeConfigs tells it, and the broker's settings told that way.

The settings of other resources (topics, groups, client metrics) have their own files and are told with the same words.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from kwire.config.setting import ConfigSource, Kind, Setting
from kwire.config.tree import Config
from kwire.config.values import Value

# Settings that say the same thing in different units, the strongest first.
SAME_THING = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_NAMES_FOR = {
    **{name: names for names in SAME_THING for name in names},
    # The second one stands in for the first, but not the other way round.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class ResourceType(IntEnum):
    """What can have settings, numbered as on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSynonym(NamedTuple):
    """One of the places a value may come from, as DescribeConfigs lists them."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """Everything DescribeConfigs tells about one setting. A sensitive value is None, a kind of None is not told."""

    name: str
    value: str | None
    source: ConfigSource
    kind: Kind | None
    is_sensitive: bool
    is_read_only: bool
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_broker(config: Config) -> Iterator[ConfigEntry]:
    """Every setting of this broker, given but unknown ones included, in order of name."""
    for name in sorted(config.values):
        value = config.values[name]
        names = _NAMES_FOR.get(name, (name,))
        given = list(config.values.every(*names))
        while given and given[0].setting.name != name:
            del given[0]  # what a stronger name says is told under that name
        yield _entry(value.setting, value.text, broker_synonyms(given))


def describe_all_brokers(config: Config) -> Iterator[ConfigEntry]:
    """What was changed for all brokers of the cluster, in order of name; nothing else is known of all of them."""
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
