"""The constructor of rows in the tables of unused settings: settings without effect, with Kafka's update mode."""

from enum import Enum, auto

from kwire.config.setting import Kind, Rule, Setting, SettingValue


class Mode(Enum):
    """Kafka's dynamic update mode of a setting. It says whether the setting can be changed while the server runs.

    PER_LISTENER settings are shown as dynamic. Kafka changes them for one listener at a time, under a name that starts
    with the prefix of the listener.
    """

    READ_ONLY = auto()
    CLUSTER_WIDE = auto()
    PER_BROKER = auto()
    PER_LISTENER = auto()


CLUSTER_WIDE, PER_BROKER, PER_LISTENER = Mode.CLUSTER_WIDE, Mode.PER_BROKER, Mode.PER_LISTENER


def _empty_problem(value: SettingValue) -> str | None:
    return None if value else "String must be non-empty"


NOT_EMPTY = Rule("not empty", _empty_problem)


def unused(
    name: str,
    kind: Kind,
    default: SettingValue,
    documentation: str,
    rule: Rule | None = None,
    mode: Mode = Mode.READ_ONLY,
    warning: str = "",
) -> Setting:
    return Setting(
        name,
        kind,
        default,
        documentation,
        rule,
        has_effect=False,
        is_dynamic=mode is not Mode.READ_ONLY,
        is_per_broker=mode in (Mode.PER_BROKER, Mode.PER_LISTENER),
        is_per_listener=mode is Mode.PER_LISTENER,
        warning=warning,
    )
