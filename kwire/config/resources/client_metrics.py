"""The settings of a client metrics subscription (KIP-714): the metrics, their interval, and the clients that push them.

The resource name is the name of the subscription. Subscriptions are stored and described. The broker does not request
metrics from clients yet.
"""

import re
import warnings
from collections.abc import Iterator, Mapping

from kwire.config.description import ConfigEntry, ConfigSynonym
from kwire.config.setting import ConfigSource, InvalidConfig, Kind, Setting, format_value
from kwire.errors import ErrorCode, KafkaError

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
# Maximum length of all expressions together. A few characters can take milliseconds to compile, so Kafka's limit is too
# high.
MATCH_LENGTH_MAX = 1000
# The properties of a client that a `match` expression can test.
CLIENT_PROPERTIES = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

_TABLE = (
    Setting("interval.ms", Kind.INT, 300000, "Interval at which a client sends its metrics.", has_effect=False),
    Setting(
        "match",
        Kind.LIST,
        (),
        "Clients of the subscription: a list of property=regular expression, all of which must match. An empty list "
        "matches all clients.",
        has_effect=False,
    ),
    Setting(
        "metrics",
        Kind.LIST,
        (),
        "Prefixes of metric names; * means all metrics, an empty list none.",
        has_effect=False,
    ),
)

CLIENT_METRICS_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _TABLE}


def validate(overrides: Mapping[str, str]) -> None:
    """Raise KafkaError, with Kafka's error code, if a subscription may not have these overrides.

    The expressions may take about a second to compile, so code on the event loop must call this in a thread.
    """
    for name in overrides:
        if name not in CLIENT_METRICS_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    try:
        parsed = {name: CLIENT_METRICS_SETTINGS[name].parse(text) for name, text in overrides.items()}
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    interval_ms, patterns = parsed.get("interval.ms"), parsed.get("match")
    if isinstance(interval_ms, int) and not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )
    if isinstance(patterns, tuple):
        if sum(map(len, patterns)) > MATCH_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"match has more than {MATCH_LENGTH_MAX} characters")
        for pattern in patterns:
            _check_pattern(pattern)


def describe(overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Return every setting of a subscription, sorted by name, as DescribeConfigs describes it."""
    for name, setting in CLIENT_METRICS_SETTINGS.items():
        text = overrides.get(name)
        value = format_value(setting.default if text is None else setting.parse(text))
        synonyms = () if text is None else (ConfigSynonym(name, value, ConfigSource.CLIENT_METRICS_CONFIG),)
        yield ConfigEntry(
            name=name,
            value=value,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            kind=setting.kind,
            is_sensitive=False,
            is_read_only=False,
            documentation=setting.description,
            synonyms=synonyms,
        )


def _check_pattern(pattern: str) -> None:
    client_property, _, expression = pattern.partition("=")
    try:
        if client_property.strip() not in CLIENT_PROPERTIES or not expression or "=" in expression:
            raise ValueError
        with warnings.catch_warnings():
            # Ignore Python's warnings about future changes of its expression syntax.
            warnings.simplefilter("ignore")
            re.compile(expression.strip())
    except (ValueError, re.error, RecursionError, OverflowError):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}") from None
