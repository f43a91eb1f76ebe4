"""Settings of groups: the broker's until a group says otherwise, within the broker's bounds."""

import pytest

from kwire.config import SETTINGS, Config, InvalidConfig, load
from kwire.config.resources.group import GROUP_SETTINGS, describe, validate, value_of
from kwire.config.setting import format_value

# Name, default and bounds of each in Kafka 4.3.1, as its own classes print them, and the two that 4.4 added.
OF_KAFKA = {
    "consumer.assignment.interval.ms": ("1000", 0, 15000),
    "consumer.heartbeat.interval.ms": ("5000", 5000, 15000),
    "consumer.session.timeout.ms": ("45000", 45000, 60000),
    "errors.deadletterqueue.copy.record.enable": ("false", None, None),
    "errors.deadletterqueue.topic.name": ("", None, None),
    "share.assignment.interval.ms": ("1000", 0, 15000),
    "share.auto.offset.reset": ("latest", None, None),
    "share.delivery.count.limit": ("5", 2, 10),
    "share.heartbeat.interval.ms": ("5000", 5000, 15000),
    "share.isolation.level": ("read_uncommitted", None, None),
    "share.partition.max.record.locks": ("2000", 100, 4000),
    "share.record.lock.duration.ms": ("30000", 15000, 60000),
    "share.renew.acknowledge.enable": ("true", None, None),
    "share.session.timeout.ms": ("45000", 45000, 60000),
    "streams.assignment.interval.ms": ("1000", 0, 15000),
    "streams.heartbeat.interval.ms": ("5000", 5000, 15000),
    "streams.initial.rebalance.delay.ms": ("3000", None, None),
    "streams.num.standby.replicas": ("0", None, 2),
    "streams.session.timeout.ms": ("45000", 45000, 60000),
}


@pytest.fixture(scope="module")
def config() -> Config:
    return load()


def refusal(overrides: dict[str, str], config: Config) -> str:
    with pytest.raises(InvalidConfig) as raised:
        validate(overrides, config)
    return str(raised.value)


def test_names_defaults_and_bounds_are_those_of_kafka(config: Config) -> None:
    assert list(GROUP_SETTINGS) == list(OF_KAFKA)
    for name, (default, least, most) in OF_KAFKA.items():
        setting = GROUP_SETTINGS[name]
        assert format_value(value_of(name, {}, config)) == default
        assert (config.values.number(setting.least) if setting.least else None) == least
        assert (config.values.number(setting.most) if setting.most else None) == most


def test_every_setting_is_bounded_by_settings_that_exist() -> None:
    for setting in GROUP_SETTINGS.values():
        for name in (setting.synonym, setting.least, setting.most):
            assert name is None or name in SETTINGS


def test_what_lies_outside_the_bounds_of_the_broker_is_refused(config: Config) -> None:
    for name, setting in GROUP_SETTINGS.items():
        if setting.least is not None and config.values.number(setting.least) > 0:
            below = config.values.number(setting.least) - 1
            words = refusal({name: str(below)}, config)
            assert words == f"{name} must be greater than or equal to {setting.least}" or "Value must be" in words
        if setting.most is not None:
            above = config.values.number(setting.most) + 1
            assert refusal({name: str(above)}, config) == f"{name} must be less than or equal to {setting.most}"


def test_settings_of_the_broker_that_are_out_of_bounds_are_not_held_against_a_group() -> None:
    config = load(
        settings=["group.consumer.session.timeout.ms=30000", "group.share.heartbeat.interval.ms=50000"],
    )
    validate({"streams.num.standby.replicas": "1", "consumer.heartbeat.interval.ms": "6000"}, config)
    assert "must be greater than or equal to" in refusal({"consumer.session.timeout.ms": "30000"}, config)


def test_session_must_outlast_a_heartbeat() -> None:
    config = load(settings=["group.consumer.max.heartbeat.interval.ms=50000"])
    assert refusal({"consumer.heartbeat.interval.ms": "45000"}, config) == (
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    )
    validate({"consumer.heartbeat.interval.ms": "45000", "consumer.session.timeout.ms": "45001"}, config)


@pytest.mark.parametrize(
    "value",
    ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT3H4M5.5S", "by_duration:P1D", "by_duration:pt1s"],
)
def test_share_groups_begin_where_kafka_lets_them(config: Config, value: str) -> None:
    validate({"share.auto.offset.reset": value}, config)


@pytest.mark.parametrize(
    "value", ["", "none", "Latest", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H", "PT1H"]
)
def test_share_groups_begin_nowhere_else(config: Config, value: str) -> None:
    assert "by_duration:<PnDTnHnMn.nS>" in refusal({"share.auto.offset.reset": value}, config)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("no.such", "1", "Unknown group config name: no.such"),
        ("consumer.session.timeout.ms", "x", "Not a number of type INT"),
        ("share.isolation.level", "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "maybe", "Expected value to be either true or false"),
    ],
)
def test_refusals_have_the_words_of_kafka(config: Config, name: str, value: str, words: str) -> None:
    assert words in refusal({name: value}, config)


def test_everything_told_is_documented_and_can_be_written_back(config: Config) -> None:
    told = list(describe({"share.auto.offset.reset": "earliest"}, config))
    assert all(entry.documentation and not entry.is_read_only for entry in told)
    validate({entry.name: entry.value for entry in told if entry.value is not None}, config)
