"""Reader of YAML files with the blocks `event_stream`, `partitioned_streams` and `consumer_groups`.

Each key sets one of the settings `kwire.rooms.*`, `kwire.streams.*` and `kwire.rest.groups.*`. `stream` is an alias of
`event_stream`. Unknown keys and values of the wrong type are errors. The error message names the key and its line.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kwire.config.setting import InvalidConfig, format_value
from kwire.config.sources import GivenValue, Source

if TYPE_CHECKING:
    import yaml

FILE_BYTES_MAX = 1024 * 1024


class _Key(NamedTuple):
    """The setting that a YAML key sets. A number in the file is multiplied by `factor`.

    The value of a key without a setting is checked and then ignored.
    """

    setting: str | None
    kind: type
    factor: int = 1


_EVENT_STREAM = {
    "enabled": _Key("kwire.rooms.enable", bool),
    "retention_mode": _Key("kwire.rooms.retention.mode", str),
    "retention_hours": _Key("kwire.rooms.retention.hours", int),
    "max_events_per_room": _Key("kwire.rooms.max.events", int),
    "max_rooms": _Key("kwire.rooms.max", int),
    "room_cleanup_interval_mins": _Key("kwire.rooms.cleanup.interval.minutes", int),
    "room_inactive_timeout_hours": _Key("kwire.rooms.inactive.timeout.hours", int),
    "max_subscribers_per_room": _Key("kwire.rooms.max.subscribers", int),
    "broadcast_timeout_ms": _Key("kwire.rooms.broadcast.timeout.ms", int),
}
_BLOCKS: dict[str, dict[str, _Key]] = {
    "event_stream": _EVENT_STREAM,
    "stream": _EVENT_STREAM,
    "partitioned_streams": {
        "enabled": _Key("kwire.streams.enable", bool),
        "default_partitions": _Key("kwire.streams.partitions", int),
        "default_replication_factor": _Key("kwire.streams.replication.factor", int),
        "default_retention.type": _Key("kwire.streams.retention.type", str),
        "default_retention.retention_secs": _Key("kwire.streams.retention.secs", int),
        "default_retention.max_bytes": _Key("kwire.streams.retention.bytes", int),
        "default_retention.max_messages": _Key("kwire.streams.retention.messages", int),
        "segment_bytes": _Key("kwire.streams.segment.bytes", int),
        "compaction_interval_secs": _Key("log.retention.check.interval.ms", int, 1000),
    },
    "consumer_groups": {
        "enabled": _Key("kwire.rest.groups.enable", bool),
        "default_strategy": _Key("kwire.rest.groups.strategy", str),
        "session_timeout_secs": _Key("kwire.rest.groups.session.timeout.secs", int),
        "rebalance_timeout_secs": _Key("kwire.rest.groups.rebalance.timeout.secs", int),
        "auto_commit": _Key("kwire.rest.groups.auto.commit", bool),
        "auto_commit_interval_secs": _Key("kwire.rest.groups.auto.commit.interval.secs", int),
        # This key has no setting: session timeouts are timers, so there is no periodic check.
        "rebalance_check_interval_secs": _Key(None, int),
    },
}
# The blocks that docs/configuration.md documents: all except the alias.
DOCUMENTED_BLOCKS = {name: keys for name, keys in _BLOCKS.items() if name != "stream"}
_KINDS = {bool: "true or false", int: "an integer", str: "a string"}


def from_yaml(path: Path) -> dict[str, GivenValue]:
    """Return the settings in the file. Raises InvalidConfig with all errors."""
    import yaml  # imported late, because few servers have such a file

    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{path}: longer than {FILE_BYTES_MAX} bytes")
    try:
        loader = yaml.SafeLoader(content)
        try:
            root = loader.get_single_node()
            return _YamlReader(path, loader).settings(root) if root is not None else {}
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InvalidConfig(f"{path}: nested too deeply") from None


class _YamlReader:
    """Reads one file. All problems are collected and reported together."""

    def __init__(self, path: Path, loader: "yaml.SafeLoader") -> None:
        self._path = path
        self._loader = loader
        self._problems: list[str] = []
        self._found: dict[str, GivenValue] = {}

    def settings(self, root: "yaml.Node") -> dict[str, GivenValue]:
        for block, node in self._pairs(root, ""):
            keys = _BLOCKS.get(block)
            if keys is None:
                self._refuse(node, block, f"unknown block; expected {', '.join(DOCUMENTED_BLOCKS)}")
            else:
                self._read_block(block, keys, node)
        if self._problems:
            raise InvalidConfig("\n".join(self._problems))
        return self._found

    def _read_block(self, block: str, keys: dict[str, _Key], node: "yaml.Node") -> None:
        for name, value in self._pairs(node, block):
            if any(key.startswith(f"{name}.") for key in keys):
                for inner, inner_value in self._pairs(value, f"{block}.{name}"):
                    self._read_key(block, f"{name}.{inner}", keys, inner_value)
            else:
                self._read_key(block, name, keys, value)

    def _read_key(self, block: str, name: str, keys: dict[str, _Key], node: "yaml.Node") -> None:
        shown, key = f"{block}.{name}", keys.get(name)
        if key is None:
            self._refuse(node, shown, "unknown key")
            return
        value = self._loader.construct_object(node, deep=True)
        # In Python a bool is also an int, so the exact type is compared.
        if not isinstance(value, bool | int | str) or type(value) is not key.kind or _is_too_long(value):
            self._refuse(node, shown, f"expected {_KINDS[key.kind]}")
        elif key.setting is None:
            if isinstance(value, int) and value < 1:
                self._refuse(node, shown, "must be at least 1")
        elif key.setting in self._found:
            self._refuse(node, shown, f"already set by {self._found[key.setting].origin.rpartition(': ')[2]}")
        else:
            text = format_value(value * key.factor if isinstance(value, int) and key.factor > 1 else value)
            assert text is not None
            self._found[key.setting] = GivenValue(text, Source.FILE, f"{self._path}: {shown}")

    def _pairs(self, node: "yaml.Node", shown: str) -> "Iterator[tuple[str, yaml.Node]]":
        import yaml

        if not isinstance(node, yaml.MappingNode):
            if not (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
                self._refuse(node, shown or "the file", "expected keys with values")
            return
        seen = set[str]()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            whole = f"{shown}.{name}" if shown else name
            if name in seen:
                self._refuse(key, whole, "given twice")
            seen.add(name)
            yield name, value

    def _refuse(self, node: "yaml.Node", shown: str, problem: str) -> None:
        self._problems.append(f"{self._path}: {shown} (line {node.start_mark.line + 1}): {problem}")


def _is_too_long(value: bool | int | str) -> bool:
    """Whether a number has more than 63 bits. No setting accepts such a number, and formatting it could take long."""
    return isinstance(value, int) and value.bit_length() > 63
