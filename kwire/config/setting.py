"""A setting: its name, kind, default, validation rule and documentation.

Broker settings (``kwire/config/settings``) and the settings of topics, groups and client metrics
(``kwire/config/resources``) are tables of such settings. A value is given as text, parsed once, and formatted as in
Kafka. The error messages are Kafka's if Kafka has a message for the error, because people search for these messages.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

SettingValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
# The maximum size of a string in versions that are not flexible, and so of a value that DescribeConfigs can return.
TEXT_BYTES_MAX = 32767
NO_EFFECT = "kwire accepts this setting but does not use it."


class Kind(IntEnum):
    """The type of a setting, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of an effective value, numbered as in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class InvalidConfig(Exception):
    """A setting is unknown or its value is invalid. The message is for the person who set it."""


class Rule(NamedTuple):
    """A condition for a value. ``problem`` returns the error message or None; ``expected`` describes valid values."""

    expected: str
    problem: Callable[[SettingValue], str | None]


def at_least(minimum: float) -> Rule:
    def problem(value: SettingValue) -> str | None:
        assert isinstance(value, (int, float))
        return None if value >= minimum else f"Value must be at least {minimum}"

    return Rule(f"at least {minimum}", problem)


def begins_with(prefix: str) -> Rule:
    def problem(value: SettingValue) -> str | None:
        assert isinstance(value, str)
        return None if value.startswith(prefix) else f"Value must begin with {prefix}"

    return Rule(f"begins with {prefix}", problem)


def between(minimum: float, maximum: float) -> Rule:
    def problem(value: SettingValue) -> str | None:
        assert isinstance(value, (int, float))
        if value < minimum:
            return f"Value must be at least {minimum}"
        return None if value <= maximum else f"Value must be no more than {maximum}"

    return Rule(f"{minimum} to {maximum}", problem)


def between_or(minimum: int, maximum: int, special: int) -> Rule:
    def problem(value: SettingValue) -> str | None:
        assert isinstance(value, int)
        if minimum <= value <= maximum or value == special:
            return None
        return f"Value must be between {minimum} and {maximum} or equal to {special}"

    return Rule(f"{minimum} to {maximum}, or {special}", problem)


def one_of(*allowed: str) -> Rule:
    """Return the rule that a string, or each entry of a list, is one of ``allowed``."""

    def problem(value: SettingValue) -> str | None:
        entries = value if isinstance(value, tuple) else (value,)
        if all(entry in allowed for entry in entries):
            return None
        return f"String must be one of: {', '.join(allowed)}"

    return Rule("one of " + ", ".join(allowed), problem)


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of a settings table. ``has_effect`` is False if kwire only accepts and shows the setting.

    The fields after ``has_effect`` apply to broker settings. A setting with ``is_dynamic`` can be changed while the
    server runs. With ``is_per_broker`` it can be changed for one broker, but not for all brokers at once. With
    ``is_per_listener`` it can be changed only under a name with a listener prefix, which kwire does not support.
    ``warning`` is logged at start if the value is not the default. ``former_name`` is the name before a renaming. It is
    accepted for one release, from files, the environment and flags. Dynamic settings cannot have one.
    """

    name: str
    kind: Kind
    default: SettingValue
    documentation: str
    rule: Rule | None = None
    has_effect: bool = True
    is_dynamic: bool = False
    is_per_broker: bool = False
    is_per_listener: bool = False
    warning: str = ""
    former_name: str = ""

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def description(self) -> str:
        """The documentation, as DescribeConfigs returns it."""
        return self.documentation if self.has_effect else f"{self.documentation} {NO_EFFECT}"

    def parse(self, text: str) -> SettingValue:
        """Parse ``text`` and check the rule. Raises InvalidConfig."""
        if len(text) > TEXT_BYTES_MAX // 4 and len(text.encode()) > TEXT_BYTES_MAX:
            raise InvalidConfig(self.refusal(f"{text[:20]}…", f"Longer than {TEXT_BYTES_MAX} bytes"))
        try:
            value = _PARSERS[self.kind](text.strip())
        except ValueError as error:
            raise InvalidConfig(self.refusal(text, str(error))) from None
        if self.rule is not None and (problem := self.rule.problem(value)) is not None:
            raise InvalidConfig(self.refusal(text.strip(), problem))
        return value

    def refusal(self, text: str, problem: str) -> str:
        """Return the error message for an invalid value. Passwords are hidden."""
        shown = "[hidden]" if self.is_sensitive else text
        return f"Invalid value {shown} for configuration {self.name}: {problem}"


def format_value(value: SettingValue) -> str | None:
    """Format a value as Kafka does in responses: ``true``, ``1,2``, ``0.5``. None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return repr(value)


# The syntax of Java's Long.parseLong: unlike in Python's int(), no underscores and only ASCII digits.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lowered == "true"


def _integer_of(bits: int, kind: Kind) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        # Every 64-bit number has at most 20 characters. The check prevents int() from parsing megabytes of digits.
        if len(text) > 20 or not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
            raise ValueError(f"Not a number of type {kind.name}")
        return int(text)

    return parse


def _double(text: str) -> float:
    # An infinite value is refused, because it has no text form.
    if not _DECIMAL.fullmatch(text) or math.isinf(value := float(text)):
        raise ValueError(f"Not a number of type {Kind.DOUBLE.name}")
    return value


def _list(text: str) -> tuple[str, ...]:
    # If entries are equal, Kafka keeps the first one (KIP-1161). A text of commas only is the empty list.
    entries = tuple(dict.fromkeys(entry.strip() for entry in text.split(",")))
    return () if entries == ("",) else entries


_PARSERS: dict[Kind, Callable[[str], SettingValue]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: str,
    Kind.INT: _integer_of(32, Kind.INT),
    Kind.SHORT: _integer_of(16, Kind.SHORT),
    Kind.LONG: _integer_of(64, Kind.LONG),
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
    Kind.CLASS: str,
    Kind.PASSWORD: str,
}
