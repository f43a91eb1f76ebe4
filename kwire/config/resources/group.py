"""The table of group settings, under Kafka's names, and the effective value of each setting of a group.

A group id has overrides, which are a mapping from name to text. A group that does not exist can also have overrides.
Without an override, the value of the broker synonym applies. Broker settings also bound the values that a group may
set.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kwire.config.description import ConfigEntry, ConfigSynonym, broker_synonyms
from kwire.config.setting import (
    ConfigSource,
    InvalidConfig,
    Kind,
    Rule,
    Setting,
    SettingValue,
    at_least,
    format_value,
    one_of,
)
from kwire.config.tree import Config

# The syntax of Java's Duration.parse without negative durations.
_DURATION = re.compile(
    r"by_duration:\+?P(?=.)([+]?[0-9]+D)?(T(?=.)([+]?[0-9]+H)?([+]?[0-9]+M)?([+]?[0-9]+([.,][0-9]{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def _reset_problem(value: SettingValue) -> str | None:
    assert isinstance(value, str)
    if value in ("earliest", "latest") or (value.startswith("by_duration:") and _DURATION.fullmatch(value)):
        return None
    return "Expected earliest, latest or by_duration:<PnDTnHnMn.nS>"


_RESET_RULE = Rule("earliest, latest or by_duration:<PnDTnHnMn.nS>", _reset_problem)


@dataclass(frozen=True, slots=True)
class GroupSetting(Setting):
    """A row of the group table: its broker synonym, if it has one, and the broker settings that bound its value."""

    synonym: str | None = None
    least: str | None = None
    most: str | None = None


# The settings that have an effect. The others are accepted and shown.
SETTINGS_WITH_EFFECT = frozenset(
    {"consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"}
)


def _bounded(name: str, documentation: str, floor: int) -> GroupSetting:
    """Return a row whose broker settings follow from its name.

    For consumer.x they are group.consumer.x, group.consumer.min.x and group.consumer.max.x.
    """
    kind, _, what = name.partition(".")
    return GroupSetting(
        name,
        Kind.INT,
        None,
        documentation,
        at_least(floor),
        has_effect=name in SETTINGS_WITH_EFFECT,
        synonym=f"group.{kind}.{what}",
        least=f"group.{kind}.min.{what}",
        most=f"group.{kind}.max.{what}",
    )


_TABLE = (
    _bounded("consumer.assignment.interval.ms", "Minimum time between two assignments of a consumer group.", 0),
    _bounded("consumer.heartbeat.interval.ms", "Interval between the heartbeats of a member of a consumer group.", 1),
    _bounded(
        "consumer.session.timeout.ms",
        "A member is removed from its consumer group after this time without a heartbeat.",
        1,
    ),
    GroupSetting(
        "errors.deadletterqueue.copy.record.enable",
        Kind.BOOLEAN,
        False,
        "Whether the dead-letter queue receives the record itself, not only its metadata.",
        has_effect=False,
    ),
    GroupSetting(
        "errors.deadletterqueue.topic.name",
        Kind.STRING,
        "",
        "Topic for records that could not be delivered to a share group. If it is empty, there is none.",
        has_effect=False,
    ),
    _bounded("share.assignment.interval.ms", "Minimum time between two assignments of a share group.", 0),
    GroupSetting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        "Offset at which a share group starts to read a partition: earliest, latest, or by_duration: with an ISO 8601 "
        "duration before the current time.",
        _RESET_RULE,
        has_effect=False,
    ),
    _bounded("share.delivery.count.limit", "Maximum number of attempts to deliver a record to a share group.", 2),
    _bounded("share.heartbeat.interval.ms", "Interval between the heartbeats of a member of a share group.", 1),
    GroupSetting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether a share group reads records of uncommitted transactions.",
        one_of("read_committed", "read_uncommitted"),
        has_effect=False,
    ),
    _bounded(
        "share.partition.max.record.locks",
        "Maximum number of records of a partition that are locked for the consumers of a share group.",
        100,
    ),
    _bounded(
        "share.record.lock.duration.ms", "How long a record stays locked for the consumer that acquired it.", 1000
    ),
    GroupSetting(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        "Whether a consumer of a share group may renew the lock of a record.",
        has_effect=False,
    ),
    _bounded(
        "share.session.timeout.ms", "A member is removed from its share group after this time without a heartbeat.", 1
    ),
    _bounded("streams.assignment.interval.ms", "Minimum time between two assignments of a streams group.", 0),
    _bounded("streams.heartbeat.interval.ms", "Interval between the heartbeats of a member of a streams group.", 1),
    GroupSetting(
        "streams.initial.rebalance.delay.ms",
        Kind.INT,
        None,
        "How long the first member of an empty streams group waits for others.",
        at_least(0),
        has_effect=False,
        synonym="group.streams.initial.rebalance.delay.ms",
    ),
    GroupSetting(
        "streams.num.standby.replicas",
        Kind.INT,
        None,
        "Number of standby replicas of each task of a streams group.",
        at_least(0),
        has_effect=False,
        synonym="group.streams.num.standby.replicas",
        most="group.streams.max.standby.replicas",
    ),
    _bounded(
        "streams.session.timeout.ms",
        "A member is removed from its streams group after this time without a heartbeat.",
        1,
    ),
)

GROUP_SETTINGS: dict[str, GroupSetting] = {setting.name: setting for setting in _TABLE}


def validate(overrides: Mapping[str, str], config: Config) -> None:
    """Raise InvalidConfig, with Kafka's message, if a group may not have these overrides."""
    for name in overrides:
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: value_of(name, overrides, config) for name in GROUP_SETTINGS}
    # Only overrides are checked, because a broker default that is out of bounds is not an error of the group.
    for name in overrides:
        setting, value = GROUP_SETTINGS[name], values[name]
        if not isinstance(value, int):
            continue
        if setting.least is not None and value < config.values.number(setting.least):
            raise InvalidConfig(f"{name} must be greater than or equal to {setting.least}")
        if setting.most is not None and value > config.values.number(setting.most):
            raise InvalidConfig(f"{name} must be less than or equal to {setting.most}")
    for kind in ("consumer", "share", "streams"):
        names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if overrides.keys().isdisjoint(names):
            continue
        session, heartbeat = (values[name] for name in names)
        assert isinstance(session, int)
        assert isinstance(heartbeat, int)
        if session <= heartbeat:
            raise InvalidConfig(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def value_of(name: str, overrides: Mapping[str, str], config: Config) -> SettingValue:
    """Return the effective value of one setting."""
    setting = GROUP_SETTINGS[name]
    text = overrides.get(name)
    if text is not None:
        return setting.parse(text)
    return config.values[setting.synonym].value if setting.synonym is not None else setting.default


def describe(overrides: Mapping[str, str], config: Config) -> Iterator[ConfigEntry]:
    """Return every group setting, sorted by name, as DescribeConfigs describes it."""
    for name, setting in GROUP_SETTINGS.items():
        synonyms = tuple(_synonyms(setting, overrides, config))
        yield ConfigEntry(
            name=name,
            value=format_value(value_of(name, overrides, config)),
            source=synonyms[0].source,
            kind=setting.kind,
            is_sensitive=False,
            is_read_only=False,
            documentation=setting.description,
            synonyms=synonyms,
        )


def _synonyms(setting: GroupSetting, overrides: Mapping[str, str], config: Config) -> Iterator[ConfigSynonym]:
    text = overrides.get(setting.name)
    if text is not None:
        yield ConfigSynonym(setting.name, text, ConfigSource.GROUP_CONFIG)
    if setting.synonym is not None:
        yield from broker_synonyms(config.values.candidates(setting.synonym))
    else:
        yield ConfigSynonym(setting.name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG)
