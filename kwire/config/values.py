"""The values in force: every setting with its value and where it comes from, before they take shape in the tree."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kwire.config.setting import ConfigSource, InvalidConfig, Kind, Setting, SettingValue, format_value
from kwire.config.settings import SETTINGS
from kwire.config.sources import Given, Source


class Value(NamedTuple):
    """The value of one setting. An unknown name has a setting of kind STRING without documentation."""

    setting: Setting
    value: SettingValue
    source: Source
    origin: str

    @property
    def text(self) -> str | None:
        return format_value(self.value)

    @property
    def config_source(self) -> ConfigSource:
        return ConfigSource.DEFAULT_CONFIG if self.source is Source.DEFAULT else ConfigSource.STATIC_BROKER_CONFIG


class Values(Mapping[str, Value]):
    """Every known setting and every unknown one that was given, by name, with typed access for the tree."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Value]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_given(self, name: str) -> bool:
        return self._values[name].source is not Source.DEFAULT

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
        """A message for a value that parses but cannot be used."""
        value = self._values[name]
        return f"{value.origin}: {value.setting.refusal(value.text or '', problem)}"


def resolve(sources: list[dict[str, Given]]) -> tuple[Values, list[str], list[str]]:
    """The values in force (later sources win), warnings about unknown names, and refusals, all of them at once."""
    given: dict[str, Given] = {}
    for source in sources:
        given.update(source)
    values = {name: Value(setting, setting.default, Source.DEFAULT, "default") for name, setting in SETTINGS.items()}
    warnings: list[str] = []
    refusals: list[str] = []
    for name, entry in given.items():
        setting = SETTINGS.get(name)
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
    return Values(values), warnings, refusals


def _kind_of_unknown(name: str) -> Kind:
    # It is shown to whoever may describe configs, so what looks like a secret is kept like one.
    return Kind.PASSWORD if "password" in name or "secret" in name or "jaas" in name else Kind.STRING


def _did_you_mean(name: str) -> str:
    import difflib  # only when somebody mistyped

    near = difflib.get_close_matches(name, SETTINGS, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
