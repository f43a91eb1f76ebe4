"""Topic settings: what a topic may say, what counts when it says nothing, and what clients are told about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.config import INT_MAX, LONG_MAX, SETTINGS, Config, ConfigSource, InvalidConfig, Kind, load
from kwire.config.description import ConfigSynonym, describe_broker
from kwire.config.resources.topic import (
    PRODUCER_COMPRESSION,
    TOPIC_SETTINGS,
    TopicSettings,
    describe,
    effective,
    settings_for,
    validate,
)
from kwire.config.setting import format_value
from kwire.config.tree import with_dynamic
from storage.batch.format import GZIP, LZ4, NONE, SNAPPY, ZSTD

# The topic settings of Apache Kafka 4.4 with their defaults.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(LONG_MAX),
    "flush.ms": str(LONG_MAX),
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(LONG_MAX),
    "max.decompressed.message.bytes": str(INT_MAX - 8),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "0",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


@pytest.fixture(scope="module")
def config() -> Config:
    return load()


OWN_DEFAULTS = {
    "kwire.events": "false",
    "kwire.lake.mode": "none",
    "kwire.log.sync": "group",
    "kwire.retention.messages": "-1",
    "kwire.room": "false",
}


def test_names_and_defaults_are_those_of_kafka(config: Config) -> None:
    told = {entry.name: entry.value for entry in describe({}, config)}
    assert told == KAFKA_DEFAULTS | OWN_DEFAULTS
    assert list(told) == sorted(told)
    assert {entry.source for entry in describe({}, config)} == {ConfigSource.DEFAULT_CONFIG}


def test_every_default_may_be_set_explicitly() -> None:
    validate(KAFKA_DEFAULTS)


def test_every_broker_synonym_exists_and_has_the_same_kind_of_value() -> None:
    numbers = {Kind.INT, Kind.LONG, Kind.SHORT}
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.synonyms:
            behind = SETTINGS[synonym.name]
            assert behind.kind is setting.kind or {behind.kind, setting.kind} <= numbers, setting.name


@pytest.mark.parametrize(
    ("overrides", "settings", "expected"),
    [
        ({"retention.ms": "5"}, ["log.retention.ms=6"], ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)),
        ({}, ["log.retention.ms=6", "log.retention.hours=1"], ("6", ConfigSource.STATIC_BROKER_CONFIG)),
        ({}, ["log.retention.minutes=2", "log.retention.hours=1"], ("120000", ConfigSource.STATIC_BROKER_CONFIG)),
        ({}, ["log.retention.hours=1"], ("3600000", ConfigSource.STATIC_BROKER_CONFIG)),
        ({}, ["log.retention.hours=-1"], ("-1", ConfigSource.STATIC_BROKER_CONFIG)),
        ({}, [], ("604800000", ConfigSource.DEFAULT_CONFIG)),
    ],
)
def test_a_topic_wins_over_the_broker_and_the_finer_unit_over_the_coarser(
    overrides: dict[str, str], settings: list[str], expected: tuple[str, ConfigSource]
) -> None:
    assert effective("retention.ms", overrides, load(settings=settings)) == expected


def test_synonyms_list_every_place_a_value_may_come_from() -> None:
    config = load(settings=["log.retention.minutes=2"])
    (entry,) = [entry for entry in describe({"retention.ms": "5"}, config) if entry.name == "retention.ms"]
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigSynonym("log.retention.minutes", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )
    assert (entry.value, entry.kind, entry.is_read_only) == ("5", Kind.LONG, False)


def test_the_typed_view_agrees_with_the_told_values(config: Config) -> None:
    assert settings_for({}, config) == TopicSettings(
        max_message_bytes=1048588,
        segment_bytes=1073741824,
        segment_ms=604800000,
        index_interval_bytes=4096,
        is_log_append_time=False,
        timestamp_before_max_ms=LONG_MAX,
        timestamp_after_max_ms=3600000,
        checks_each_timestamp=False,
        is_plain=True,
        is_group_synced=True,
        unsynced_messages_max=1,
        flush_ms=LONG_MAX,
        has_delete_policy=True,
        is_compacted=False,
        retention_ms=604800000,
        retention_bytes=-1,
        retention_messages=-1,
        file_delete_delay_ms=60000,
        segment_jitter_ms=0,
        delete_retention_ms=86400000,
        compaction_lag_min_ms=0,
        compaction_lag_max_ms=LONG_MAX,
        cleanable_ratio_min=0.5,
        compression=PRODUCER_COMPRESSION,
        compression_level=None,
        record_bytes_max=INT_MAX - 8,
        is_room=False,
        is_event_topic=False,
    )
    chosen = settings_for({"segment.ms": "7", "message.timestamp.type": "LogAppendTime"}, config)
    assert (chosen.segment_ms, chosen.is_log_append_time) == (7, True)


@pytest.mark.parametrize(
    ("overrides", "codec", "level"),
    [
        ({"compression.type": "uncompressed"}, NONE, None),
        ({"compression.type": "gzip"}, GZIP, -1),
        ({"compression.type": "gzip", "compression.gzip.level": "5", "compression.zstd.level": "6"}, GZIP, 5),
        ({"compression.type": "snappy"}, SNAPPY, None),
        ({"compression.type": "lz4"}, LZ4, 9),
        ({"compression.type": "lz4", "compression.lz4.level": "17"}, LZ4, 17),
        ({"compression.type": "zstd"}, ZSTD, 3),
        ({"compression.type": "zstd", "compression.zstd.level": "-7"}, ZSTD, -7),
        ({"compression.zstd.level": "6"}, PRODUCER_COMPRESSION, None),
    ],
)
def test_a_topic_has_one_codec_with_its_level_or_keeps_the_producers(
    config: Config, overrides: dict[str, str], codec: int, level: int | None
) -> None:
    validate(overrides)
    found = settings_for(overrides, config)
    assert (found.compression, found.compression_level) == (codec, level)
    assert found.is_plain is (codec == PRODUCER_COMPRESSION)


def test_the_broker_says_the_codec_of_topics_that_say_none() -> None:
    broker = load(settings=["compression.type=gzip", "compression.gzip.level=2"])
    found = settings_for({}, broker)
    assert (found.compression, found.compression_level, found.is_plain) == (GZIP, 2, False)
    assert settings_for({"compression.type": "producer"}, broker).is_plain


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        ("flush.ms", "1000"),
        ("kwire.retention.messages", "0"),
        ("compression.type", "uncompressed"),
        ("max.decompressed.message.bytes", "1000000"),
    ],
)
def test_topic_that_asks_for_more_than_the_append_is_not_plain(config: Config, name: str, value: str) -> None:
    assert not settings_for({name: value}, config).is_plain


def test_how_many_records_may_be_unsynced_follows_from_two_settings(config: Config) -> None:
    def unsynced(**overrides: str) -> int:
        given = {name.replace("_", "."): value for name, value in overrides.items()}
        return settings_for(given, config).unsynced_messages_max

    assert unsynced() == unsynced(flush_messages="10") == 1
    assert unsynced(kwire_log_sync="os") == LONG_MAX
    assert unsynced(kwire_log_sync="os", flush_messages="10") == 10


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("foo", "1", "Unknown topic config name: foo"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ("segment.bytes", "100", "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576"),
        (
            "segment.bytes",
            "3000000000",
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        ("max.message.bytes", "1_0", "Invalid value 1_0 for configuration max.message.bytes: Not a number of type INT"),
        (
            "cleanup.policy",
            "a",
            "Invalid value a for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "message.timestamp.type",
            "createtime",
            "Invalid value createtime for configuration message.timestamp.type: "
            "String must be one of: CreateTime, LogAppendTime",
        ),
        (
            "compression.type",
            "rot13",
            "Invalid value rot13 for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "remote.storage.enable",
            "true",
            "Invalid value true for configuration remote.storage.enable: Tiered storage is not available",
        ),
        (
            "leader.replication.throttled.replicas",
            "x",
            "Invalid value x for configuration leader.replication.throttled.replicas: "
            "Expected * or a list of partition:broker",
        ),
    ],
)
def test_refusals_have_the_words_of_kafka(name: str, value: str, refusal: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate({name: value})
    assert str(refused.value) == refusal


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(10\) > max\.compaction\.lag\.ms \(5\)"):
        validate({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", " 5 "),
        ("retention.bytes", "-7"),
        ("max.message.bytes", "+5"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete, compact"),
        ("cleanup.policy", "delete,delete"),
        ("preallocate", "TRUE"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, value: str) -> None:
    validate({name: value})


def test_an_empty_cleanup_policy_neither_deletes_nor_compacts(config: Config) -> None:
    assert effective("cleanup.policy", {"cleanup.policy": ""}, config).value == ""


def test_the_broker_tells_every_setting_and_hides_secrets() -> None:
    secrets = {"KAFKA_SSL_KEY_PASSWORD": "hush", "KAFKA_MY_OWN_PASSWORD": "hush"}
    config = load(environment=secrets, settings=["num.partitions=3"])
    told = {entry.name: entry for entry in describe_broker(config)}
    assert set(told) == {*SETTINGS, "my.own.password"}
    for name in ("ssl.key.password", "my.own.password"):
        assert told[name].value is None
        assert told[name].is_sensitive
    assert "hush" not in repr(told)
    assert told["num.partitions"].synonyms == (
        ConfigSynonym("num.partitions", "3", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("num.partitions", "1", ConfigSource.DEFAULT_CONFIG),
    )
    for name, setting in SETTINGS.items():
        if name != "num.partitions":
            assert told[name].value == format_value(setting.default)


_MAYBE = st.none() | st.integers(0, 1000)


@given(topic=_MAYBE, of_broker=_MAYBE, of_all=_MAYBE, static_ms=_MAYBE, static_minutes=_MAYBE, static_hours=_MAYBE)
def test_first_place_that_has_a_value_counts_and_all_are_told(
    topic: int | None,
    of_broker: int | None,
    of_all: int | None,
    static_ms: int | None,
    static_minutes: int | None,
    static_hours: int | None,
) -> None:
    places = [
        ("retention.ms", topic, 1, ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", of_broker, 1, ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", of_all, 1, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", static_ms, 1, ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.minutes", static_minutes, 60_000, ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", static_hours, 3_600_000, ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", 168, 3_600_000, ConfigSource.DEFAULT_CONFIG),
    ]
    given_places = [place for place in places if place[1] is not None]

    def set_in(source: ConfigSource) -> dict[str, str]:
        return {name: str(value) for name, value, _, place in given_places if place is source}

    config = load(settings=[f"{name}={text}" for name, text in set_in(ConfigSource.STATIC_BROKER_CONFIG).items()])
    config = with_dynamic(
        config,
        set_in(ConfigSource.DYNAMIC_BROKER_CONFIG),
        set_in(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    overrides = set_in(ConfigSource.DYNAMIC_TOPIC_CONFIG)
    _, value, factor, source = given_places[0]
    assert value is not None
    assert effective("retention.ms", overrides, config) == (str(value * factor), source)
    assert settings_for(overrides, config).retention_ms == value * factor
    (told,) = (entry for entry in describe(overrides, config) if entry.name == "retention.ms")
    assert told.synonyms == tuple(ConfigSynonym(name, str(given), place) for name, given, _, place in given_places)
