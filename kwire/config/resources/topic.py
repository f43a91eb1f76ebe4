"""What can be set for a topic: Kafka's names, what each topic says, what the broker says for all, what is in force.

A topic carries overrides, a table from name to text. Where it says nothing, the broker setting behind the topic setting
counts (``retention.ms`` asks ``log.retention.ms``, then ``.minutes``, then ``.hours``), else the default. ``effective``
answers for one setting, ``describe`` for all of them, and ``TopicSettings`` is the typed view for the hot path.
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
from kwire.config.settings import ANY_RECORD_BYTES, COMPRESSION_TYPES
from kwire.config.tree import Config

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

# The codec of a topic that keeps what the producer chose.
KEPT_COMPRESSION = -1

_THROTTLED = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


class BrokerSynonym(NamedTuple):
    """The broker setting a topic setting falls back to, and how many of the topic's units one of its units is."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class TopicSetting(Setting):
    """A row of the topic table. ``synonyms`` are asked in order; ``default`` counts when none of them has a value."""

    synonyms: tuple[BrokerSynonym, ...] = ()

    @property
    def synonym_names(self) -> Iterator[str]:
        return (synonym.name for synonym in self.synonyms)


class Effective(NamedTuple):
    """The value in force, as Kafka writes it, and who said so."""

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
    behind = tuple(one if isinstance(one, BrokerSynonym) else BrokerSynonym(one) for one in synonyms)
    return TopicSetting(name, kind, default, documentation, rule, has_effect, synonyms=behind)


_TABLE = (
    _topic(
        "cleanup.policy",
        Kind.LIST,
        "What happens to old records: delete them, compact them to the last of each key, both, or (empty) neither.",
        "log.cleanup.policy",
        rule=one_of("compact", "delete"),
    ),
    _topic(
        "compression.gzip.level",
        Kind.INT,
        "Level where compression.type is gzip; -1 is the codec's own.",
        "compression.gzip.level",
        rule=between_or(1, 9, -1),
    ),
    _topic(
        "compression.lz4.level",
        Kind.INT,
        "Level where compression.type is lz4. As in Kafka, 9 is the fast mode and all others are the slow one.",
        "compression.lz4.level",
        rule=between(1, 17),
    ),
    _topic(
        "compression.type",
        Kind.STRING,
        "Codec of stored batches: producer keeps what the producer chose, any other is what all of them get.",
        "compression.type",
        rule=COMPRESSION_TYPES,
    ),
    _topic(
        "compression.zstd.level",
        Kind.INT,
        "Level where compression.type is zstd.",
        "compression.zstd.level",
        rule=between(-131072, 22),
    ),
    _topic(
        "delete.retention.ms",
        Kind.LONG,
        "How long a compacted topic keeps the mark of a deleted key, so that slow readers see it.",
        "log.cleaner.delete.retention.ms",
        rule=at_least(0),
    ),
    _topic(
        "errors.deadletterqueue.group.enable",
        Kind.BOOLEAN,
        "Whether share groups may put undeliverable records here.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "file.delete.delay.ms",
        Kind.LONG,
        "How long a removed segment's files stay before they are deleted.",
        "log.segment.delete.delay.ms",
        rule=at_least(0),
    ),
    _topic(
        "flush.messages",
        Kind.LONG,
        "Records after which the log is forced to disk.",
        "log.flush.interval.messages",
        rule=at_least(1),
    ),
    _topic(
        "flush.ms",
        Kind.LONG,
        "Time after which the log is forced to disk.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        rule=at_least(0),
    ),
    _topic(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        "Replicas whose copying is slowed down on the follower's side: partition:broker, or * for all.",
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
        "Whether the topic belongs to the event store: made by POST /topics with its schemas, and never changed.",
        default=False,
    ),
    _topic(
        "kwire.lake.mode",
        Kind.STRING,
        "Whether kwire pipeline lake takes the topic without being told its name, and how: none, append (a row for "
        "each record) or upsert (a row for each key).",
        rule=one_of("none", "append", "upsert"),
        default="none",
    ),
    _topic(
        "kwire.log.sync",
        Kind.STRING,
        "When a record counts as stored: group, when a sync round has put it on disk; os, when the operating system "
        "has it.",
        "kwire.log.sync",
        rule=one_of("group", "os"),
    ),
    _topic(
        "kwire.retention.messages",
        Kind.LONG,
        "Number of newest records that are kept, to the record; -1 is no bound.",
        rule=at_least(-1),
        default=-1,
    ),
    _topic(
        "kwire.room",
        Kind.BOOLEAN,
        "Whether the topic is a room: it counts among kwire.rooms.max, and goes when nobody uses it any more.",
        default=False,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        "Replicas whose copying is slowed down on the leader's side: partition:broker, or * for all.",
        rule=_THROTTLE_RULE,
        default=(),
        has_effect=False,
    ),
    _topic(
        "local.retention.bytes",
        Kind.LONG,
        "Bytes kept on local disk when older ones are in tiered storage; -2 is retention.bytes.",
        "log.local.retention.bytes",
        rule=at_least(-2),
        has_effect=False,
    ),
    _topic(
        "local.retention.ms",
        Kind.LONG,
        "Age kept on local disk when older records are in tiered storage; -2 is retention.ms.",
        "log.local.retention.ms",
        rule=at_least(-2),
        has_effect=False,
    ),
    _topic(
        "max.compaction.lag.ms",
        Kind.LONG,
        "Age at which a record must be considered for compaction.",
        "log.cleaner.max.compaction.lag.ms",
        rule=at_least(1),
    ),
    _topic(
        "max.decompressed.message.bytes",
        Kind.INT,
        "Largest single record of a compressed batch, decompressed; judged when it is produced.",
        "max.decompressed.message.bytes",
        rule=at_least(0),
    ),
    _topic(
        "max.message.bytes",
        Kind.INT,
        "Largest record batch that is accepted, as it comes over the wire.",
        "message.max.bytes",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        "How far a record's time may lie ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        "How far a record's time may lie behind the broker's clock.",
        "log.message.timestamp.before.max.ms",
        rule=at_least(0),
    ),
    _topic(
        "message.timestamp.type",
        Kind.STRING,
        "Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type",
        rule=one_of("CreateTime", "LogAppendTime"),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        "Share of uncompacted bytes from which compaction is worth its cost.",
        "log.cleaner.min.cleanable.ratio",
        rule=between(0, 1),
    ),
    _topic(
        "min.compaction.lag.ms",
        Kind.LONG,
        "Least age at which a record may be compacted away.",
        "log.cleaner.min.compaction.lag.ms",
        rule=at_least(0),
    ),
    _topic(
        "min.insync.replicas",
        Kind.INT,
        "Copies that must have a record when acks=all, but, as in Kafka, no more than there are; here it is one.",
        "min.insync.replicas",
        rule=at_least(1),
        has_effect=False,
    ),
    _topic(
        "preallocate",
        Kind.BOOLEAN,
        "Reserve a segment's space in advance; kwire always does, in growing steps.",
        "log.preallocate",
        has_effect=False,
    ),
    _topic(
        "remote.copy.lag.bytes",
        Kind.LONG,
        "Newer bytes after which a segment may go to tiered storage; -1 follows local retention.",
        rule=at_least(-1),
        default=0,
        has_effect=False,
    ),
    _topic(
        "remote.copy.lag.ms",
        Kind.LONG,
        "Age after which a segment may go to tiered storage; -1 follows local retention.",
        rule=at_least(-1),
        default=0,
        has_effect=False,
    ),
    _topic(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        "Send nothing more to tiered storage, only read from it.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        "Delete what is in tiered storage when it is switched off for the topic.",
        default=False,
        has_effect=False,
    ),
    _topic(
        "remote.storage.enable",
        Kind.BOOLEAN,
        "Keep older segments in tiered storage, which kwire does not have.",
        rule=_NO_REMOTE,
        default=False,
        has_effect=False,
    ),
    _topic(
        "retention.bytes",
        Kind.LONG,
        "Size of a partition beyond which the oldest segments go; -1 is no bound.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        Kind.LONG,
        "Age, by their own timestamps, at which records go; -1 keeps them for ever.",
        "log.retention.ms",
        BrokerSynonym("log.retention.minutes", _MINUTE_MS),
        BrokerSynonym("log.retention.hours", _HOUR_MS),
        rule=at_least(-1),
    ),
    _topic(
        "segment.bytes",
        Kind.INT,
        "Size at which a segment is closed and the next one begun.",
        "log.segment.bytes",
        rule=at_least(1048576),
    ),
    _topic(
        "segment.index.bytes",
        Kind.INT,
        "Largest index file; kwire's indexes grow as they need.",
        "log.index.size.max.bytes",
        rule=at_least(4),
        has_effect=False,
    ),
    _topic(
        "segment.jitter.ms",
        Kind.LONG,
        "Most that is taken off segment.ms at random, so that not all segments are closed at once.",
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
        "Let a replica that is behind become leader, at the price of lost records.",
        "unclean.leader.election.enable",
        has_effect=False,
    ),
)

TOPIC_SETTINGS: dict[str, TopicSetting] = {setting.name: setting for setting in _TABLE}


# Codecs by the number they have in a batch.
_CODECS = {"producer": KEPT_COMPRESSION, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What the hot path asks of a topic's settings, parsed."""

    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    # Whether the times of all records count, or just the largest of a batch, which is there without a look inside.
    judges_each_record: bool
    # Nothing below asks for anything beside the append itself: most topics are like that, and appends ask just this.
    is_plain: bool
    is_group_synced: bool
    # Records that may be readable before they are synced, and one more: from this many on, a sync comes first.
    unsynced_messages_max: int
    flush_ms: int
    is_deleted: bool
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
    # The codec that all batches get, KEPT_COMPRESSION for none, and its level if it has any.
    compression: int
    compression_level: int | None
    # Bytes of one record in a compressed batch, unfolded.
    record_bytes_max: int
    is_room: bool
    # Records come through the event store, whose journal makes them durable.
    is_event_topic: bool


def validate(overrides: Mapping[str, str]) -> None:
    """InvalidConfig with the words of Kafka's broker if a topic may not have these settings."""
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
        raise InvalidConfig("A topic of the event store cannot be compacted: its events are numbered without a gap")


def effective(name: str, overrides: Mapping[str, str], config: Config) -> Effective:
    """The value in force for one setting and its source."""
    value, source = _effective(_setting(name), overrides, config)
    return Effective(format_value(value), source)


def settings_for(overrides: Mapping[str, str], config: Config) -> TopicSettings:
    """The typed view of a topic's settings in force."""

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
        judges_each_record=before_max_ms != LONG_MAX,
        is_plain=(
            not is_log_append_time
            and "compact" not in policies
            and before_max_ms == LONG_MAX
            and flush_ms == LONG_MAX
            and retention_messages < 0
            and codec == "producer"
            and record_bytes_max >= ANY_RECORD_BYTES
            and not is_event_topic
        ),
        is_group_synced=is_group_synced,
        unsynced_messages_max=1 if is_group_synced else LONG_MAX if is_event_topic else number("flush.messages"),
        flush_ms=LONG_MAX if is_event_topic else flush_ms,
        is_deleted="delete" in policies,
        # Whatever the broker says: events are numbered without a gap.
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
    """Every topic setting as DescribeConfigs answers it, in order of name."""
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
    for value in config.values.every(*setting.synonym_names):
        factor = next(one.factor for one in setting.synonyms if one.name == value.setting.name)
        return _converted(value.value, factor), value.config_source
    return setting.default, ConfigSource.DEFAULT_CONFIG


def _synonyms(setting: TopicSetting, overrides: Mapping[str, str], config: Config) -> Iterator[ConfigSynonym]:
    text = overrides.get(setting.name)
    if text is not None:
        yield ConfigSynonym(setting.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    yield from broker_synonyms(config.values.every(*setting.synonym_names))
    if not setting.synonyms:
        yield ConfigSynonym(setting.name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG)


def _converted(value: SettingValue, factor: int) -> SettingValue:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1  # -1 hours is no bound, not minus an hour
