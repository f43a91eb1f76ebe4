"""What can be set for a group: Kafka's names, what each group says, what the broker says for all, what is in force.

A group carries overrides, a table from name to text, whether it exists or not. Where it says nothing, the broker
setting behind the group setting counts. What a group may say is bounded by the broker's settings too.
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

# Java's Duration.parse, of which nothing negative is allowed here.
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
    """A row of the group table: the broker setting behind it, if any, and those that bound what a group may say."""

    synonym: str | None = None
    least: str | None = None
    most: str | None = None


# What acts; the rest is accepted and shown.
EFFECTIVE = frozenset(
    {"consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"}
)


def _bounded(name: str, documentation: str, floor: int) -> GroupSetting:
    """The broker's names follow from the group's: consumer.x has group.consumer.x, group.consumer.min.x and .max.x."""
    kind, _, what = name.partition(".")
    return GroupSetting(
        name,
        Kind.INT,
        None,
        documentation,
        at_least(floor),
        has_effect=name in EFFECTIVE,
        synonym=f"group.{kind}.{what}",
        least=f"group.{kind}.min.{what}",
        most=f"group.{kind}.max.{what}",
    )


_TABLE = (
    _bounded("consumer.assignment.interval.ms", "Least time between two assignments of a consumer group.", 0),
    _bounded("consumer.heartbeat.interval.ms", "Time between two heartbeats of a member of a consumer group.", 1),
    _bounded("consumer.session.timeout.ms", "A member of a consumer group silent for so long is out.", 1),
    GroupSetting(
        "errors.deadletterqueue.copy.record.enable",
        Kind.BOOLEAN,
        False,
        "Whether the dead-letter queue gets the record itself, not only what is known about it.",
        has_effect=False,
    ),
    GroupSetting(
        "errors.deadletterqueue.topic.name",
        Kind.STRING,
        "",
        "Topic for records that a share group could not deliver; empty for none.",
        has_effect=False,
    ),
    _bounded("share.assignment.interval.ms", "Least time between two assignments of a share group.", 0),
    GroupSetting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        "Where a share group begins in a partition: earliest, latest, or by_duration: with an ISO 8601 duration back "
        "from now.",
        _RESET_RULE,
        has_effect=False,
    ),
    _bounded("share.delivery.count.limit", "How often a share group tries to deliver a record.", 2),
    _bounded("share.heartbeat.interval.ms", "Time between two heartbeats of a member of a share group.", 1),
    GroupSetting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether a share group gets records of transactions that are not committed.",
        one_of("read_committed", "read_uncommitted"),
        has_effect=False,
    ),
    _bounded(
        "share.partition.max.record.locks", "Most records of a partition that consumers of a share group have.", 100
    ),
    _bounded("share.record.lock.duration.ms", "How long a record stays with the consumer that got it.", 1000),
    GroupSetting(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        "Whether a consumer of a share group may ask to keep a record longer.",
        has_effect=False,
    ),
    _bounded("share.session.timeout.ms", "A member of a share group silent for so long is out.", 1),
    _bounded("streams.assignment.interval.ms", "Least time between two assignments of a streams group.", 0),
    _bounded("streams.heartbeat.interval.ms", "Time between two heartbeats of a member of a streams group.", 1),
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
        "Standby copies of each task of a streams group.",
        at_least(0),
        has_effect=False,
        synonym="group.streams.num.standby.replicas",
        most="group.streams.max.standby.replicas",
    ),
    _bounded("streams.session.timeout.ms", "A member of a streams group silent for so long is out.", 1),
)

GROUP_SETTINGS: dict[str, GroupSetting] = {setting.name: setting for setting in _TABLE}


def validate(overrides: Mapping[str, str], config: Config) -> None:
    """InvalidConfig with the words of Kafka's broker if a group may not have these settings."""
    for name in overrides:
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: value_of(name, overrides, config) for name in GROUP_SETTINGS}
    # What a group does not say is the broker's word, and no reason to refuse what the group does say.
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
    """The value in force for one setting."""
    setting = GROUP_SETTINGS[name]
    text = overrides.get(name)
    if text is not None:
        return setting.parse(text)
    return config.values[setting.synonym].value if setting.synonym is not None else setting.default


def describe(overrides: Mapping[str, str], config: Config) -> Iterator[ConfigEntry]:
    """Every group setting as DescribeConfigs answers it, in order of name."""
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
        yield from broker_synonyms(config.values.every(setting.synonym))
    else:
        yield ConfigSynonym(setting.name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG)
