"""docs/configuration.md, from the tables of broker and topic settings."""

from collections.abc import Iterable, Iterator

from kwire.config import LONG_MAX, Setting, SettingValue
from kwire.config.setting import INT_MAX, format_value
from kwire.config.settings import SECTIONS
from kwire.topic_config import TOPIC_SETTINGS, TopicSetting

_INTRODUCTION = """\
# Configuration

This page is written by `scripts/generate` from `kwire/config/settings.py` and `kwire/topic_config.py`.

Settings have Kafka's names; what is kwire's alone starts with `kwire.`. A later source wins:

1. the defaults below;
2. a `server.properties` file in Java's syntax: `scripts/serve --config FILE`;
3. the environment: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`, and a doubled `_` stands for `_`, a tripled one for
   `-`; `KWIRE_HTTP_LISTENER` is `kwire.http.listener`; `CLUSTER_ID` is `cluster.id`;
4. flags: `--set name=value`, as often as needed, and for the commonest three `--kafka HOST:PORT`, `--http HOST:PORT`
   and `--data-dir DIR`.

A wrong value ends the start with a message that names where it was set. An unknown name in the file or the environment
is warned about and kept, so that it can be seen with the rest; in a flag it is an error. Settings marked *no effect*
are accepted and shown because Kafka knows them, and change nothing here so far.
"""

_TOPIC_INTRODUCTION = """\
## Topic settings

Set when a topic is created or altered. A topic that says nothing follows the broker setting named as its default; of
several the first that has a value counts.
"""


def render() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for title, section in SECTIONS.items():
        yield f"## {title}\n"
        yield from _table(("setting", "kind", "default", "allowed", "meaning"), (_broker_row(one) for one in section))
    yield _TOPIC_INTRODUCTION
    rows = (_topic_row(setting) for setting in TOPIC_SETTINGS.values())
    yield from _table(("setting", "kind", "default", "allowed", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _broker_row(setting: Setting) -> tuple[str, ...]:
    return (f"`{setting.name}`", _kind(setting), _shown(setting.default), _allowed(setting), _meaning(setting))


def _topic_row(setting: TopicSetting) -> tuple[str, ...]:
    synonyms = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
    default = synonyms or _shown(setting.default)
    return (f"`{setting.name}`", _kind(setting), default, _allowed(setting), _meaning(setting))


def _kind(setting: Setting) -> str:
    return setting.kind.name.lower()


def _allowed(setting: Setting) -> str:
    return setting.rule.expected if setting.rule is not None else ""


def _meaning(setting: Setting) -> str:
    return setting.documentation if setting.has_effect else f"{setting.documentation} *No effect.*"


def _shown(value: SettingValue) -> str:
    if value in (INT_MAX, LONG_MAX):
        return "no bound"
    text = format_value(value)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"
