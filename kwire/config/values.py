"""The effective value of every setting, with its source. The configuration tree is built from these values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Self

from kwire.config.setting import ConfigSource, InvalidConfig, Kind, Setting, SettingValue, format_value
from kwire.config.settings.broker import SETTINGS
from kwire.config.settings.per_listener import prefixed_name, prefixed_setting
from kwire.config.settings.tls import PREFIXED_SETTINGS
from kwire.config.sources import GivenValue, Source

# A setting of one listener: listener.name.NAME.ssl.keystore.location. As in Kafka, NAME is in lower case.
LISTENER_PREFIX = "listener.name."


class Value(NamedTuple):
    """The value of one setting. The setting of an unknown name is a STRING or a PASSWORD without documentation."""

    setting: Setting
    value: SettingValue
    source: Source
    origin: str

    @property
    def text(self) -> str | None:
        return format_value(self.value)

    @property
    def config_source(self) -> ConfigSource:
        return _CONFIG_SOURCES.get(self.source, ConfigSource.STATIC_BROKER_CONFIG)


_CONFIG_SOURCES = {
    Source.DEFAULT: ConfigSource.DEFAULT_CONFIG,
    Source.DYNAMIC_DEFAULT: ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.DYNAMIC_BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}


class Values(Mapping[str, Value]):
    """Maps each known setting, and each unknown setting that was given, to its effective value.

    The typed methods are for the tree. ``candidates`` also returns the values that the effective value overrides.
    ``dynamic`` has the changes made while the server runs, as layers in order of precedence.
    """

    __slots__ = ("_candidates", "_dynamic", "_static", "_values")

    def __init__(self, static: dict[str, Value], dynamic: tuple[dict[str, Value], ...] = ()) -> None:
        self._static = static
        self._dynamic = dynamic
        self._candidates: dict[tuple[str, ...], tuple[Value, ...]] = {}
        self._values = static
        if dynamic:
            self._values = dict(static)
            for layer in reversed(dynamic):
                self._values.update(layer)

    def with_dynamic(self, of_broker: Mapping[str, str], of_all: Mapping[str, str]) -> Self:
        """Return the same static values with new dynamic ones. ``of_broker`` takes precedence over ``of_all``."""
        layers = (
            _dynamic_layer(of_broker, Source.DYNAMIC_BROKER, "changed for this broker"),
            _dynamic_layer(of_all, Source.DYNAMIC_DEFAULT, "changed for all brokers"),
        )
        return type(self)(self._static, layers)

    def candidates(self, *names: str) -> tuple[Value, ...]:
        """Return all values given to synonymous settings, in order of precedence, and then the defaults."""
        found = self._candidates.get(names)
        if found is None:
            # The cache is bounded, because the groups of synonymous names come from a few constant tables.
            found = self._candidates[names] = tuple(self._find_candidates(names))
        return found

    def _find_candidates(self, names: tuple[str, ...]) -> Iterator[Value]:
        for layer in (*self._dynamic, self._static):
            for name in names:
                value = layer.get(name)
                if value is not None and value.source is not Source.DEFAULT:
                    yield value
        for name in names:
            setting = self._static[name].setting
            if setting.default is not None:
                yield Value(setting, setting.default, Source.DEFAULT, "default")

    def of_all_brokers(self) -> Iterable[Value]:
        """Return the values that were changed for all brokers."""
        return self._dynamic[-1].values() if self._dynamic else ()

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of_listener(self, listener: str, name: str) -> str:
        """Return the full name of the setting that applies to a listener: with its prefix if it is given so."""
        prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return prefixed if prefixed in self._values else name

    def is_given(self, name: str) -> bool:
        return self._values[name].source is not Source.DEFAULT

    def name_for_listener(self, listener: str, name: str) -> str:
        """Return the name under which a setting of a listener is given: with the listener's prefix, or without it."""
        prefixed = prefixed_name(listener, name)
        return prefixed if prefixed in self._values else name

    def number(self, name: str) -> int:
        value = self._values[name].value
        assert isinstance(value, int), name
        return value

    def real(self, name: str) -> float:
        value = self._values[name].value
        assert isinstance(value, int | float), name
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._values[name].value
        assert isinstance(value, bool), name
        return value

    def string(self, name: str) -> str:
        value = self._values[name].value
        assert isinstance(value, str), name
        return value

    def string_or_none(self, name: str) -> str | None:
        value = self._values[name].value
        assert value is None or isinstance(value, str), name
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        value = self._values[name].value
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def refusal(self, name: str, problem: str) -> str:
        """Return the error message for a value that can be parsed but is invalid."""
        value = self._values[name]
        return f"{value.origin}: {value.setting.refusal(value.text or '', problem)}"


def resolve(sources: list[dict[str, GivenValue]]) -> tuple[Values, list[str], list[str]]:
    """Return the effective values, all warnings and all errors. Later sources take precedence."""
    given: dict[str, GivenValue] = {}
    for source in sources:
        given.update(source)
    values = {name: Value(setting, setting.default, Source.DEFAULT, "default") for name, setting in SETTINGS.items()}
    warnings: list[str] = []
    refusals: list[str] = []
    for name, entry in given.items():
        setting = SETTINGS.get(name) or prefixed_setting(name) or listener_setting(name)
        if setting is None:
            problem = f"{entry.origin}: unknown setting {name}{_did_you_mean(name)}"
            if entry.source is Source.FLAG:
                refusals.append(problem)
                continue
            warnings.append(problem)
            setting = Setting(name, _kind_of_unknown(name), None, "")
        try:
            values[name] = Value(setting, setting.parse(entry.text), entry.source, entry.origin)
        except InvalidConfig as error:
            refusals.append(f"{entry.origin}: {error}")
            continue
        if setting.warning and values[name].value != setting.default:
            warnings.append(f"{entry.origin}: {name}: {setting.warning}")
    return Values(values), warnings, refusals


def listener_setting(name: str) -> Setting | None:
    """Return the setting of a name with a listener prefix, or None if the name is not one."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    return replace(SETTINGS[base], name=name) if listener and base in PREFIXED_SETTINGS else None


def _dynamic_layer(given: Mapping[str, str], source: Source, origin: str) -> dict[str, Value]:
    return {name: Value(SETTINGS[name], SETTINGS[name].parse(text), source, origin) for name, text in given.items()}


def _kind_of_unknown(name: str) -> Kind:
    # DescribeConfigs shows unknown settings, so a setting whose name looks like that of a secret is hidden.
    return Kind.PASSWORD if "password" in name or "secret" in name or "jaas" in name else Kind.STRING


def _did_you_mean(name: str) -> str:
    import difflib  # imported late, because it is only needed for unknown names

    near = difflib.get_close_matches(name, SETTINGS, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
