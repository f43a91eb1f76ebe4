"""docs/configuration.md, from the tables of broker and topic settings."""

from collections.abc import Iterable, Iterator

from kwire.client_metrics_config import CLIENT_METRICS_SETTINGS
from kwire.config import LONG_MAX, Setting, SettingValue
from kwire.config.setting import INT_MAX, format_value
from kwire.config.settings import SECTIONS
from kwire.config.streams_yaml import DOCUMENTED_BLOCKS
from kwire.group_config import GROUP_SETTINGS, GroupSetting
from kwire.topic_config import TOPIC_SETTINGS, TopicSetting

_INTRODUCTION = """\
# Configuration

This page is written by `scripts/generate` from `kwire/config/settings.py` and `kwire/topic_config.py`.

Settings have Kafka's names; what is kwire's alone starts with `kwire.`. A later source wins:

1. the defaults below;
2. files, each with `scripts/serve --config FILE`, the last one strongest: a `server.properties` in Java's syntax, or a
   YAML file (`.yaml`, `.yml`) with the blocks at the end of this page;
3. the environment: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`, and a doubled `_` stands for `_`, a tripled one for
   `-`; `KWIRE_HTTP_LISTENER` is `kwire.http.listener`; `CLUSTER_ID` is `cluster.id`;
4. flags: `--set name=value`, as often as needed, and for the commonest three `--kafka HOST:PORT`, `--http HOST:PORT`
   and `--data-dir DIR`.

A wrong value ends the start with a message that names where it was set. An unknown name in the file or the environment
is warned about and kept, so that it can be seen with the rest; in a flag it is an error. Settings marked *no effect*
are accepted and shown because Kafka knows them, and change nothing here. Every broker setting of Apache Kafka 4.3 is
known, so that an existing configuration is accepted. A setting without effect that is given does not cause a warning,
except `authorizer.class.name`: without an authorizer every client may do everything.

Settings marked *dynamic* can be changed while the server runs, for one broker or for all of them (`kafka-configs
--entity-type brokers`, or any client's admin calls). Such a change acts at once, is kept in the data directory and
wins over all of the above: this broker's over that of all brokers.
"""

_TOPIC_INTRODUCTION = """\
## Topic settings

Set when a topic is created or altered. A topic that says nothing follows the broker setting named as its default; of
several the first that has a value counts.
"""

_GROUP_INTRODUCTION = """\
## Group settings

Set for a group by name (`kafka-configs --entity-type groups`), whether it exists or not, within the bounds that the
broker's `group.*.min.*` and `group.*.max.*` give.
"""

_CLIENT_METRICS_INTRODUCTION = """\
## Client metrics settings

Set for a subscription by name (`kafka-configs --entity-type client-metrics`).
"""

_YAML_INTRODUCTION = """\
## YAML blocks

A file that ends in `.yaml` or `.yml` may hold these blocks; each key stands for a setting above. A key or a block that
is not known is refused, and so is a value of the wrong kind. `stream` is another name of `event_stream`.
"""


def render() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for title, section in SECTIONS.items():
        yield f"## {title}\n"
        yield from _table(("setting", "kind", "default", "allowed", "meaning"), (_broker_row(one) for one in section))
    yield _TOPIC_INTRODUCTION
    head = ("setting", "kind", "default", "allowed", "meaning")
    yield from _table(head, (_topic_row(setting) for setting in TOPIC_SETTINGS.values()))
    yield _GROUP_INTRODUCTION
    yield from _table(head, (_group_row(setting) for setting in GROUP_SETTINGS.values()))
    yield _CLIENT_METRICS_INTRODUCTION
    yield from _table(head, (_broker_row(setting) for setting in CLIENT_METRICS_SETTINGS.values()))
    yield _YAML_INTRODUCTION
    yield from _table(("key", "setting"), _yaml_rows())


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


def _group_row(setting: GroupSetting) -> tuple[str, ...]:
    default = f"`{setting.synonym}`" if setting.synonym else _shown(setting.default)
    return (f"`{setting.name}`", _kind(setting), default, _allowed(setting), _meaning(setting))


def _yaml_rows() -> Iterator[tuple[str, ...]]:
    for block, keys in DOCUMENTED_BLOCKS.items():
        for name, key in keys.items():
            if key.setting is None:
                meaning = "accepted: sessions end on time by themselves, so nobody has to check"
            else:
                meaning = f"`{key.setting}`" + (f", times {key.factor}" if key.factor > 1 else "")
            yield f"`{block}.{name}`", meaning


def _kind(setting: Setting) -> str:
    return setting.kind.name.lower()


def _allowed(setting: Setting) -> str:
    return setting.rule.expected if setting.rule is not None else ""


def _meaning(setting: Setting) -> str:
    marks = [" *No effect.*"] * (not setting.has_effect) + [" *Dynamic.*"] * setting.is_dynamic
    return setting.documentation + "".join(marks)


def _shown(value: SettingValue) -> str:
    if value in (INT_MAX, LONG_MAX):
        return "no bound"
    text = format_value(value)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"
