"""What can be set for a subscription to client metrics (KIP-714): which metrics, how often, of which clients.

The names of the resources are the names of the subscriptions. They are kept and told; clients are not asked for their
metrics yet.
"""

import re
import warnings
from collections.abc import Iterator, Mapping

from kwire.config.description import ConfigEntry, ConfigSynonym
from kwire.config.setting import ConfigSource, InvalidConfig, Kind, Setting, format_value
from kwire.errors import ErrorCode, KafkaError

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
# Characters of all expressions together. Some take milliseconds each to be read, and Kafka's bound is far too high.
MATCH_LENGTH_MAX = 1000
# What a client may be told apart by.
MATCHED = frozenset(
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
    Setting(
        "interval.ms", Kind.INT, 300000, "Time between two times that a client sends its metrics.", has_effect=False
    ),
    Setting(
        "match",
        Kind.LIST,
        (),
        "Clients that are asked: a list of property=regular expression, all of which must match; empty is all clients.",
        has_effect=False,
    ),
    Setting(
        "metrics",
        Kind.LIST,
        (),
        "Prefixes of the names of metrics; * is all of them, an empty list none.",
        has_effect=False,
    ),
)

CLIENT_METRICS_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _TABLE}


def validate(overrides: Mapping[str, str]) -> None:
    """KafkaError, with Kafka's code for it, if a subscription may not have these settings.

    Expressions may take it a second or so: whoever has others waiting lets a thread do it.
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
    """Every setting of a subscription as DescribeConfigs answers it, in order of name."""
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
    matched, _, expression = pattern.partition("=")
    try:
        if matched.strip() not in MATCHED or not expression or "=" in expression:
            raise ValueError
        with warnings.catch_warnings():
            # What Python's expressions may mean one day is nobody's concern here.
            warnings.simplefilter("ignore")
            re.compile(expression.strip())
    except (ValueError, re.error, RecursionError, OverflowError):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}") from None
