"""The YAML block for rooms, streams and groups: every key is a setting, and nothing is passed over in silence."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwire.config import Config, InvalidConfig, load
from kwire.config.settings.broker import SETTINGS
from kwire.config.streams_yaml import DOCUMENTED_BLOCKS, from_yaml

WHOLE = """\
event_stream:
  enabled: true
  retention_mode: "count"
  retention_hours: 12
  max_events_per_room: 50
  max_rooms: 7
  room_cleanup_interval_mins: 5
  room_inactive_timeout_hours: 2
  max_subscribers_per_room: 9
  broadcast_timeout_ms: 250

partitioned_streams:
  enabled: false
  default_partitions: 4
  default_replication_factor: 1
  default_retention:
    type: "Time"
    retention_secs: 60
    max_bytes: 2048
    max_messages: 11
  segment_bytes: 2097152
  compaction_interval_secs: 30

consumer_groups:
  enabled: false
  default_strategy: "sticky"
  session_timeout_secs: 20
  rebalance_timeout_secs: 40
  auto_commit: false
  auto_commit_interval_secs: 3
  rebalance_check_interval_secs: 10
"""


def configured(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "streams.yaml"
    file.write_text(text)
    return load(files=[file])


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        configured(tmp_path, text)
    return str(caught.value)


@pytest.mark.proves("S0-39", "S0-40", "S0-41", "S0-42", "S0-43", "S0-44", "S0-45")
def test_defaults_of_rooms_are_those_of_the_source_text() -> None:
    rooms = load().rooms
    assert rooms.is_enabled
    assert (rooms.retention_mode, rooms.retention_hours, rooms.events_max) == ("hybrid", 24, 100_000)
    assert rooms.rooms_max == 100_000
    assert rooms.cleanup_interval_ms == 60 * 60_000
    assert rooms.inactive_timeout_ms == 24 * 3_600_000
    assert rooms.subscribers_max == 10_000
    assert rooms.broadcast_timeout_ms == 1000


@pytest.mark.proves("S0-31")
def test_a_socket_that_is_silent_is_kept_for_half_a_minute() -> None:
    assert load().web.socket_idle_timeout_ms == 30_000


@pytest.mark.proves("S0-88")
def test_defaults_of_streams_are_those_of_the_source_text() -> None:
    config = load()
    assert config.streams == (True, 3, 1, "Combined", 3600, 104_857_600, 100_000, 104_857_600)


@pytest.mark.proves("S0-89")
def test_defaults_of_groups_are_those_of_the_source_text() -> None:
    assert load().rest_groups == (True, "round_robin", 30_000, 60_000, True, 5_000)


@pytest.mark.proves("S0-39", "S0-40", "S0-41", "S0-42", "S0-43", "S0-44", "S0-45", "S0-88", "S0-89")
def test_every_key_sets_what_it_stands_for(tmp_path: Path) -> None:
    config = configured(tmp_path, WHOLE)
    rooms = config.rooms
    assert (rooms.retention_mode, rooms.retention_hours, rooms.events_max, rooms.rooms_max) == ("count", 12, 50, 7)
    assert (rooms.cleanup_interval_ms, rooms.inactive_timeout_ms) == (300_000, 7_200_000)
    assert (rooms.subscribers_max, rooms.broadcast_timeout_ms) == (9, 250)
    assert config.streams == (False, 4, 1, "Time", 60, 2048, 11, 2_097_152)
    assert config.log.retention_check_interval_ms == 30_000
    assert config.rest_groups == (False, "sticky", 20_000, 40_000, False, 3_000)
    assert not configured(tmp_path, "event_stream: {enabled: false}").rooms.is_enabled


def test_every_key_of_the_table_is_in_the_whole_block_and_stands_for_a_setting() -> None:
    def names(block: dict[str, object]) -> set[str]:
        return {
            f"{name}.{inner}" if inner else name
            for name, value in block.items()
            for inner in (value if isinstance(value, dict) else [""])
        }

    blocks = yaml.safe_load(WHOLE)
    assert {block: names(keys) for block, keys in blocks.items()} == {
        block: set(keys) for block, keys in DOCUMENTED_BLOCKS.items()
    }
    for keys in DOCUMENTED_BLOCKS.values():
        for key in keys.values():
            assert key.setting is None or key.setting in SETTINGS


@pytest.mark.proves("C-10")
def test_stream_is_another_name_of_event_stream(tmp_path: Path) -> None:
    config = configured(tmp_path, "stream:\n  retention_mode: time\n  retention_hours: 3\n")
    assert (config.rooms.retention_mode, config.rooms.retention_hours) == ("time", 3)
    both = "stream:\n  max_rooms: 3\nevent_stream:\n  max_rooms: 4\n"
    assert "event_stream.max_rooms (line 4): already set by stream.max_rooms" in refusal(tmp_path, both)


def test_value_is_known_by_file_and_key(tmp_path: Path) -> None:
    config = configured(tmp_path, WHOLE)
    assert config.values["kwire.rooms.max"].origin == f"{tmp_path}/streams.yaml: event_stream.max_rooms"
    assert refusal(tmp_path, "event_stream:\n  retention_mode: ring\n") == (
        f"{tmp_path}/streams.yaml: event_stream.retention_mode: Invalid value ring for configuration "
        "kwire.rooms.retention.mode: String must be one of: time, count, hybrid"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("event_stream:\n  max_room: 3\n", "event_stream.max_room (line 2): unknown key"),
        ("rooms:\n  max: 3\n", "rooms (line 2): unknown block"),
        ("event_stream:\n  max_rooms: many\n", "event_stream.max_rooms (line 2): expected an integer"),
        ("event_stream:\n  max_rooms: true\n", "expected an integer"),
        ("event_stream:\n  max_rooms: 1.5\n", "expected an integer"),
        ("event_stream:\n  max_rooms: [1]\n", "expected an integer"),
        ("event_stream:\n  max_rooms:\n", "expected an integer"),
        (f"event_stream:\n  max_rooms: {'9' * 400}\n", "expected an integer"),
        ("event_stream:\n  enabled: 1\n", "expected true or false"),
        ("event_stream:\n  retention_mode: 24\n", "expected a string"),
        ("event_stream:\n  max_rooms: 1\n  max_rooms: 2\n", "event_stream.max_rooms (line 3): given twice"),
        ("event_stream: 3\n", "event_stream (line 1): expected keys with values"),
        ("- event_stream\n", "the file (line 1): expected keys with values"),
        ("partitioned_streams:\n  default_retention: Time\n", "default_retention (line 2): expected keys"),
        ("partitioned_streams:\n  default_retention:\n    age: 1\n", "default_retention.age (line 3): unknown key"),
        ("consumer_groups:\n  rebalance_check_interval_secs: 0\n", "must be at least 1"),
        ("event_stream: {", "is not valid YAML"),
        ("a: b: c\n", "is not valid YAML"),
        ("event_stream:\n  max_rooms: !!python/object:os.system {}\n", "is not valid YAML"),
        ("a: &a [*a]\n", "unknown block"),
        ("{" * 5000, "streams.yaml"),
        ("\x00", "is not valid YAML"),
    ],
)
def test_what_nobody_would_read_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in refusal(tmp_path, text)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(tmp_path, "event_stream:\n  a: 1\n  b: 2\nother: {}\n").splitlines()
    assert len(told) == 3


def test_empty_file_and_empty_blocks_say_nothing(tmp_path: Path) -> None:
    for text in ("", "---\n", "# nothing\n", "event_stream:\nconsumer_groups: {}\n"):
        assert configured(tmp_path, text).rooms == load().rooms


def test_file_that_is_missing_or_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load(files=[tmp_path / "none.yml"])
    assert "longer than" in refusal(tmp_path, "#" * (1024 * 1024 + 1))


def test_later_files_win_and_the_environment_wins_over_files(tmp_path: Path) -> None:
    block, properties = tmp_path / "a.yml", tmp_path / "server.properties"
    block.write_text("event_stream:\n  max_rooms: 7\n  retention_hours: 7\n")
    properties.write_text("kwire.rooms.max=8\nkwire.rooms.retention.hours=8\n")
    assert load(files=[block, properties]).rooms.rooms_max == 8
    assert load(files=[properties, block]).rooms.rooms_max == 7
    config = load(files=[properties, block], environment={"KWIRE_ROOMS_MAX": "9"})
    assert (config.rooms.rooms_max, config.rooms.retention_hours) == (9, 7)


@given(st.binary(max_size=200))
def test_no_bytes_bring_anything_but_settings_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    file = tmp_path_factory.mktemp("yaml") / "any.yaml"
    file.write_bytes(raw)
    with contextlib.suppress(InvalidConfig):
        assert isinstance(from_yaml(file), dict)


def test_settings_of_the_bridge_are_checked() -> None:
    for setting in (
        "kwire.rooms.inactive.timeout.hours=0",
        "kwire.rooms.max=-1",
        "kwire.rooms.retention.hours=0",
        "kwire.streams.replication.factor=2",
        "kwire.http.origins=example.org",
        "kwire.http.origins=http://a/b",
        "kwire.websocket.idle.timeout.ms=10000",
    ):
        with pytest.raises(InvalidConfig, match=setting.partition("=")[0]):
            load(settings=[setting])
    assert load(settings=["kwire.rooms.inactive.timeout.hours=-1"]).rooms.inactive_timeout_ms == -1
    web = load(settings=["kwire.http.origins=http://a:1, https://b"]).web
    assert web.origins == {"http://a:1", "https://b"}
    assert not web.is_open_to_all_origins
    assert load(settings=["kwire.http.origins=*"]).web.is_open_to_all_origins
