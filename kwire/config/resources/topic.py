"""The table of topic settings, under Kafka's names, and the effective value of each setting of a topic.

A topic has overrides, which are a mapping from name to text. Without an override, the value of the broker synonym
applies, and without a broker synonym the default. For ``retention.ms`` the synonyms are ``log.retention.ms``, then
``log.retention.minutes``, then ``log.retention.hours``. ``effective`` returns the value of one setting, ``describe``
returns all of them, and ``TopicSettings`` has the parsed values for the hot path.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kwire.config.description import ConfigEntry, ConfigSynonym, broker_synonyms
from kwire.config.setting import (
    LONG_MAX,
    ConfigSource,
    InvalidConfig,
    Kind,
    Rule,
    Setting,
    SettingValue,
    at_least,
    between,
    between_or,
    format_value,
    one_of,
)
from kwire.config.settings.broker import COMPRESSION_TYPES, RECORD_BYTES_UNLIMITED
from kwire.config.tree import Config

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

# The codec number of topics that store batches in the codec of the producer.
PRODUCER_COMPRESSION = -1

_THROTTLED = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


class BrokerSynonym(NamedTuple):
    """The broker setting that applies without an override. Its value times `factor` has the topic setting's unit."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class TopicSetting(Setting):
    """A row of the topic table. The first of ``synonyms`` that has a value applies, else ``default``."""

    synonyms: tuple[BrokerSynonym, ...] = ()

    @property
    def synonym_names(self) -> Iterator[str]:
        return (synonym.name for synonym in self.synonyms)


class EffectiveValue(NamedTuple):
    """The effective value of a setting, in Kafka's format, and its source."""

    value: str | None
    source: ConfigSource


def _throttled_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(_THROTTLED.fullmatch(entry) for entry in value):
        return None
    return "Expected * or a list of partition:broker"


def _remote_problem(value: SettingValue) -> str | None:
    return "Tiered storage is not available" if value is True else None


_THROTTLE_RULE = Rule("* or partition:broker, …", _throttled_problem)
_NO_REMOTE = Rule("false", _remote_problem)


def _topic(
    name: str,
    kind: Kind,
    documentation: str,
    *synonyms: str | BrokerSynonym,
    rule: Rule | None = None,
    default: SettingValue = None,
    has_effect: bool = True,
) -> TopicSetting:
    broker_settings = tuple(one if isinstance(one, BrokerSynonym) else BrokerSynonym(one) for one in synonyms)
    return TopicSetting(name, kind, default, documentation, rule, has_effect, synonyms=broker_settings)


_TABLE = (
    _topic(
        "cleanup.policy",
        Kind.LIST,
        "Cleanup policy for old records: delete, compact (keep the last record of each key), both, or none (empty).",
        "log.cleanup.policy",
        rule=one_of("compact", "delete"),
    ),
    _topic(
        "compression.gzip.level",
        Kind.INT,
        "Compression level if compression.type is gzip; -1 is the codec's default.",
        "compression.gzip.level",
        rule=between_or(1, 9, -1),
    ),
    _topic(
        "compression.lz4.level",
        Kind.INT,
        "Compression level if compression.type is lz4. As in Kafka, 9 selects the fast mode and every other level the "
        "slow mode.",
        "compression.lz4.level",
        rule=between(1, 17),
    ),
    _topic(
        "compression.type",
        Kind.STRING,
        "Compression codec of stored batches: producer keeps the producer's codec; with any other value all batches "
        "are stored with that codec.",
        "compression.type",
        rule=COMPRESSION_TYPES,
    ),
    _topic(
        "compression.zstd.level",
        Kind.INT,
        "Compression level if compression.type is zstd.",
        "compression.zstd.level",
        rule=between(-131072, 22),
    ),
    _topic(
        "delete.retention.ms",
        Kind.LONG,
        "How long a compacted topic keeps the tombstone of a deleted key, so that slow consumers see it.",
        "log.cleaner.delete.retention.ms",
        rule=at_least(0),
    ),
    _topic(
        "errors.deadletterqueue.group.enable",
        Kind.BOOLEAN,
        "Whether share groups may write undeliverable records to this topic.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "file.delete.delay.ms",
        Kind.LONG,
        "Delay before the files of a removed segment are deleted.",
        "log.segment.delete.delay.ms",
        rule=at_least(0),
    ),
    _topic(
        "flush.messages",
        Kind.LONG,
        "Number of records after which the log is synced to disk.",
        "log.flush.interval.messages",
        rule=at_least(1),
    ),
    _topic(
        "flush.ms",
        Kind.LONG,
        "Time after which the log is synced to disk.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        rule=at_least(0),
    ),
    _topic(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        "Replicas whose replication is throttled on the follower: partition:broker, or * for all.",
        rule=_THROTTLE_RULE,
        default=(),
        has_effect=False,
    ),
    _topic(
        "index.interval.bytes",
        Kind.INT,
        "Bytes of records between two entries of the offset index.",
        "log.index.interval.bytes",
        rule=at_least(0),
    ),
    _topic(
        "kwire.events",
        Kind.BOOLEAN,
        "Whether the topic belongs to the event store. It is set when POST /topics creates the topic with its schemas, "
        "and cannot be changed.",
        default=False,
    ),
    _topic(
        "kwire.lake.mode",
        Kind.STRING,
        "How kwire pipeline lake exports the topic if no topics are named: none (not at all), append (a row for each "
        "record) or upsert (a row for each key).",
        rule=one_of("none", "append", "upsert"),
        default="none",
    ),
    _topic(
        "kwire.log.sync",
        Kind.STRING,
        "When a record counts as stored: group, when a sync round (group commit) has synced it to disk; os, when it is "
        "written to the operating system's page cache.",
        "kwire.log.sync",
        rule=one_of("group", "os"),
    ),
    _topic(
        "kwire.retention.messages",
        Kind.LONG,
        "Number of newest records that are kept; -1 means no limit. The limit is exact, not rounded to segments.",
        rule=at_least(-1),
        default=-1,
    ),
    _topic(
        "kwire.room",
        Kind.BOOLEAN,
        "Whether the topic is a room: it counts towards kwire.rooms.max and is deleted after "
        "kwire.rooms.inactive.timeout.hours without use.",
        default=False,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        "Replicas whose replication is throttled on the leader: partition:broker, or * for all.",
        rule=_THROTTLE_RULE,
        default=(),
        has_effect=False,
    ),
    _topic(
        "local.retention.bytes",
        Kind.LONG,
        "Size up to which a partition stays on local disk when older segments are in tiered storage; -2 means "
        "retention.bytes.",
        "log.local.retention.bytes",
        rule=at_least(-2),
        has_effect=False,
    ),
    _topic(
        "local.retention.ms",
        Kind.LONG,
        "Age up to which records stay on local disk when older ones are in tiered storage; -2 means retention.ms.",
        "log.local.retention.ms",
        rule=at_least(-2),
        has_effect=False,
    ),
    _topic(
        "max.compaction.lag.ms",
        Kind.LONG,
        "Maximum time that a record may remain uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
        rule=at_least(1),
    ),
    _topic(
        "max.decompressed.message.bytes",
        Kind.INT,
        "Maximum decompressed size of a single record in a compressed batch; checked when the batch is produced.",
        "max.decompressed.message.bytes",
        rule=at_least(0),
    ),
    _topic(
        "max.message.bytes",
        Kind.INT,
        "Maximum size of a record batch, as sent by the producer.",
        "message.max.bytes",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        "How far a record's timestamp may be ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        "How far a record's timestamp may be before the broker's clock.",
        "log.message.timestamp.before.max.ms",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.type",
        Kind.STRING,
        "Timestamp of a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type",
        rule=one_of("CreateTime", "LogAppendTime"),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        "Minimum ratio of uncompacted bytes to all bytes of the log at which the log is compacted.",
        "log.cleaner.min.cleanable.ratio",
        rule=between(0, 1),
    ),
    _topic(
        "min.compaction.lag.ms",
        Kind.LONG,
        "Minimum age at which a record may be removed by compaction.",
        "log.cleaner.min.compaction.lag.ms",
        rule=at_least(0),
    ),
    _topic(
        "min.insync.replicas",
        Kind.INT,
        "Minimum number of in-sync replicas that must have a record when acks=all. As in Kafka, it is limited to the "
        "number of replicas, which in kwire is one.",
        "min.insync.replicas",
        rule=at_least(1),
        has_effect=False,
    ),
    _topic(
        "preallocate",
        Kind.BOOLEAN,
        "Preallocate the disk space of a segment; kwire always does, in growing steps.",
        "log.preallocate",
        has_effect=False,
    ),
    _topic(
        "remote.copy.lag.bytes",
        Kind.LONG,
        "Number of newer bytes after which a segment is copied to tiered storage; -1 follows local retention.",
        rule=at_least(-1),
        default=0,
        has_effect=False,
    ),
    _topic(
        "remote.copy.lag.ms",
        Kind.LONG,
        "Age after which a segment is copied to tiered storage; -1 follows local retention.",
        rule=at_least(-1),
        default=0,
        has_effect=False,
    ),
    _topic(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        "Stop copying segments to tiered storage, and only read from it.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        "Delete the topic's data in tiered storage when tiered storage is disabled for the topic.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "remote.storage.enable",
        Kind.BOOLEAN,
        "Store older segments in tiered storage, which kwire does not support.",
        rule=_NO_REMOTE,
        default=False,
        has_effect=False,
    ),
    _topic(
        "retention.bytes",
        Kind.LONG,
        "Partition size above which the oldest segments are deleted; -1 means no limit.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        Kind.LONG,
        "Age, by their timestamps, at which records are deleted; -1 keeps them forever.",
        "log.retention.ms",
        BrokerSynonym("log.retention.minutes", _MINUTE_MS),
        BrokerSynonym("log.retention.hours", _HOUR_MS),
        rule=at_least(-1),
    ),
    _topic(
        "segment.bytes",
        Kind.INT,
        "Size at which a segment is closed and the next one is started.",
        "log.segment.bytes",
        rule=at_least(1048576),
    ),
    _topic(
        "segment.index.bytes",
        Kind.INT,
        "Maximum size of an index file; kwire's indexes grow as needed.",
        "log.index.size.max.bytes",
        rule=at_least(4),
        has_effect=False,
    ),
    _topic(
        "segment.jitter.ms",
        Kind.LONG,
        "Maximum random jitter that is subtracted from segment.ms, so that segments are not all closed at once.",
        "log.roll.jitter.ms",
        BrokerSynonym("log.roll.jitter.hours", _HOUR_MS),
        rule=at_least(0),
    ),
    _topic(
        "segment.ms",
        Kind.LONG,
        "Age at which a segment is closed even if it is not full.",
        "log.roll.ms",
        BrokerSynonym("log.roll.hours", _HOUR_MS),
        rule=at_least(1),
    ),
    _topic(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        "Let a replica that is not in sync become leader, at the price of lost records.",
        "unclean.leader.election.enable",
        has_effect=False,
    ),
)

TOPIC_SETTINGS: dict[str, TopicSetting] = {setting.name: setting for setting in _TABLE}


# The number of each codec in the attributes of a batch.
_CODECS = {"producer": PRODUCER_COMPRESSION, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The parsed settings of a topic that the hot path needs."""

    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    # Whether the timestamp of each record is checked. Otherwise only the largest one, in the batch header, is checked.
    checks_each_timestamp: bool
    # True if no setting requires work besides the append itself. An append tests this flag before single settings.
    is_plain: bool
    is_group_synced: bool
    # When this number of records is not synced, the log is synced before these records become readable.
    unsynced_messages_max: int
    flush_ms: int
    has_delete_policy: bool
    is_compacted: bool
    retention_ms: int
    retention_bytes: int
    retention_messages: int
    file_delete_delay_ms: int
    segment_jitter_ms: int
    delete_retention_ms: int
    compaction_lag_min_ms: int
    compaction_lag_max_ms: int
    cleanable_ratio_min: float
    # The codec in which batches are stored, or PRODUCER_COMPRESSION, and the codec's level if it has levels.
    compression: int
    compression_level: int | None
    # The maximum decompressed size of one record in a compressed batch.
    record_bytes_max: int
    is_room: bool
    # True if the event store writes the records and its event journal makes them durable.
    is_event_topic: bool


def validate(overrides: Mapping[str, str]) -> None:
    """Raise InvalidConfig, with Kafka's message, if a topic may not have these overrides."""
    parsed = {name: _setting(name).parse(text) for name, text in overrides.items()}
    lag_min, lag_max = parsed.get("min.compaction.lag.ms", 0), parsed.get("max.compaction.lag.ms", LONG_MAX)
    assert isinstance(lag_min, int)
    assert isinstance(lag_max, int)
    if lag_min > lag_max:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({lag_min}) > max.compaction.lag.ms ({lag_max})"
        )
    policies = parsed.get("cleanup.policy", ())
    assert isinstance(policies, tuple)
    if parsed.get("kwire.events") is True and "compact" in policies:
        raise InvalidConfig("A topic of the event store cannot be compacted: its events are numbered without gaps")


def effective(name: str, overrides: Mapping[str, str], config: Config) -> EffectiveValue:
    """Return the effective value of one setting and its source."""
    value, source = _effective(_setting(name), overrides, config)
    return EffectiveValue(format_value(value), source)


def settings_for(overrides: Mapping[str, str], config: Config) -> TopicSettings:
    """Return the parsed effective settings of a topic."""

    def value_of(name: str) -> SettingValue:
        return _effective(TOPIC_SETTINGS[name], overrides, config)[0]

    def number(name: str) -> int:
        value = value_of(name)
        assert isinstance(value, int), name
        return value

    policies, ratio = value_of("cleanup.policy"), value_of("min.cleanable.dirty.ratio")
    assert isinstance(policies, tuple)
    assert isinstance(ratio, int | float)
    codec, record_bytes_max = value_of("compression.type"), number("max.decompressed.message.bytes")
    assert isinstance(codec, str)
    level_name = f"compression.{codec}.level"
    is_event_topic = value_of("kwire.events") is True
    is_group_synced = value_of("kwire.log.sync") == "group" and not is_event_topic
    is_log_append_time = value_of("message.timestamp.type") == "LogAppendTime"
    flush_ms, retention_messages = number("flush.ms"), number("kwire.retention.messages")
    before_max_ms, after_max_ms = number("message.timestamp.before.max.ms"), number("message.timestamp.after.max.ms")
    return TopicSettings(
        max_message_bytes=number("max.message.bytes"),
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        is_log_append_time=is_log_append_time,
        timestamp_before_max_ms=before_max_ms,
        timestamp_after_max_ms=after_max_ms,
        checks_each_timestamp=before_max_ms != LONG_MAX,
        is_plain=(
            not is_log_append_time
            and "compact" not in policies
            and before_max_ms == LONG_MAX
            and flush_ms == LONG_MAX
            and retention_messages < 0
            and codec == "producer"
            and record_bytes_max >= RECORD_BYTES_UNLIMITED
            and not is_event_topic
        ),
        is_group_synced=is_group_synced,
        unsynced_messages_max=1 if is_group_synced else LONG_MAX if is_event_topic else number("flush.messages"),
        flush_ms=LONG_MAX if is_event_topic else flush_ms,
        has_delete_policy="delete" in policies,
        # Event topics are never compacted, even if the broker's default is compact: their events have no gaps.
        is_compacted="compact" in policies and not is_event_topic,
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        retention_messages=retention_messages,
        file_delete_delay_ms=number("file.delete.delay.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        compaction_lag_min_ms=number("min.compaction.lag.ms"),
        compaction_lag_max_ms=number("max.compaction.lag.ms"),
        cleanable_ratio_min=float(ratio),
        compression=_CODECS[codec],
        compression_level=number(level_name) if level_name in TOPIC_SETTINGS else None,
        record_bytes_max=record_bytes_max,
        is_room=value_of("kwire.room") is True,
        is_event_topic=is_event_topic,
    )


def describe(overrides: Mapping[str, str], config: Config) -> Iterator[ConfigEntry]:
    """Return every topic setting, sorted by name, as DescribeConfigs describes it."""
    for name, setting in TOPIC_SETTINGS.items():
        value, source = _effective(setting, overrides, config)
        yield ConfigEntry(
            name=name,
            value=None if setting.is_sensitive else format_value(value),
            source=source,
            kind=setting.kind,
            is_sensitive=setting.is_sensitive,
            is_read_only=False,
            documentation=setting.description,
            synonyms=tuple(_synonyms(setting, overrides, config)),
        )


def _setting(name: str) -> TopicSetting:
    try:
        return TOPIC_SETTINGS[name]
    except KeyError:
        raise InvalidConfig(f"Unknown topic config name: {name}") from None


def _effective(
    setting: TopicSetting, overrides: Mapping[str, str], config: Config
) -> tuple[SettingValue, ConfigSource]:
    text = overrides.get(setting.name)
    if text is not None:
        return setting.parse(text), ConfigSource.DYNAMIC_TOPIC_CONFIG
    for value in config.values.candidates(*setting.synonym_names):
        factor = next(one.factor for one in setting.synonyms if one.name == value.setting.name)
        return _converted(value.value, factor), value.config_source
    return setting.default, ConfigSource.DEFAULT_CONFIG


def _synonyms(setting: TopicSetting, overrides: Mapping[str, str], config: Config) -> Iterator[ConfigSynonym]:
    text = overrides.get(setting.name)
    if text is not None:
        yield ConfigSynonym(setting.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    yield from broker_synonyms(config.values.candidates(*setting.synonym_names))
    if not setting.synonyms:
        yield ConfigSynonym(setting.name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG)


def _converted(value: SettingValue, factor: int) -> SettingValue:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1  # a negative value, such as -1 hours, is no limit
