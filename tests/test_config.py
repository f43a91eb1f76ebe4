"""The configuration: where values come from, who wins, and what a person is told who set a wrong one."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.config import SETTINGS, Address, ConfigSource, InvalidConfig, Kind, Listener, Source, load
from kwire.config.listeners import parse_address
from kwire.config.properties import InvalidProperties, decode_properties
from kwire.config.setting import format_value
from kwire.config.settings.broker import FORMER_NAMES
from kwire.config.sources import from_environment
from kwire.config.tree import with_dynamic


def test_defaults_open_loopback_doors_only() -> None:
    config = load()
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == ()
    assert config.http == Address("127.0.0.1", 8082)
    assert config.node_id == 1
    assert config.cluster_id is None
    assert config.log.data_dir == Path("kwire-data")
    assert config.warnings == ()


def test_every_default_satisfies_its_own_rule() -> None:
    for setting in SETTINGS.values():
        text = format_value(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nmessage.max.bytes=3\nfetch.max.bytes=4096\n")
    config = load(
        files=[file],
        environment={"KAFKA_NUM_PARTITIONS": "5", "KAFKA_MESSAGE_MAX_BYTES": "6"},
        settings=["num.partitions=8"],
    )
    assert config.topics.partition_count == 8
    values = config.values
    assert (values["num.partitions"].source, values["num.partitions"].text) == (Source.FLAG, "8")
    assert (values["message.max.bytes"].source, values["message.max.bytes"].text) == (Source.ENVIRONMENT, "6")
    assert (values["fetch.max.bytes"].source, values["fetch.max.bytes"].text) == (Source.FILE, "4096")
    assert values["fetch.max.bytes"].config_source is ConfigSource.STATIC_BROKER_CONFIG
    assert values["node.id"].config_source is ConfigSource.DEFAULT_CONFIG


def test_short_flags_stand_for_settings() -> None:
    config = load(kafka="127.0.0.1:0", http="[::1]:0", data_dir="/data/kwire")
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0),)
    assert config.http == Address("::1", 0)
    assert config.log.data_dir == Path("/data/kwire")


def test_an_empty_http_address_is_no_http_port() -> None:
    assert load(http="").http is None


def test_older_names_count_until_the_newer_one_is_set() -> None:
    assert load(settings=["broker.id=7", "log.dir=/a"]).node_id == 7
    assert load(settings=["broker.id=7", "log.dir=/a"]).log.data_dir == Path("/a")
    assert load(settings=["broker.id=7", "node.id=8"]).node_id == 8
    assert load(settings=["log.dir=/a", "log.dirs=/b"]).log.data_dir == Path("/b")
    assert load(settings=["log.dirs=/b,/c"]).log.data_dirs == (Path("/b"), Path("/c"))


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B_C", "a_b.c"),
        ("KAFKA_A___B", "a-b"),
        ("KWIRE_HTTP_LISTENER", "kwire.http.listener"),
        ("CLUSTER_ID", "cluster.id"),
        ("KAFKA_CLUSTER_ID", "cluster.id"),
    ],
)
def test_environment_names_follow_the_official_image(variable: str, name: str) -> None:
    found = from_environment({variable: "1"})
    assert list(found) == [name]
    assert found[name].origin == f"environment variable {variable}"


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HOME",
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_SERVICE_HOST",
        "KWIRE_TEST_BOOTSTRAP",
        "KWIRE_USER",
        "KWIRE_PASSWORD",
        "KWIRE_BOOTSTRAP_SERVER",
        "KWIRE_HTTP",
        "KWIRE_CONFIG",
        "KWIRE_PROFILE",
        "KWIRE_DEBUG",
        "PATH",
    ],
)
def test_variables_that_are_no_settings_are_passed_over(variable: str) -> None:
    assert from_environment({variable: "1"}) == {}


@given(st.sampled_from(sorted(SETTINGS)))
def test_every_setting_can_be_set_by_environment(name: str) -> None:
    variable = name.replace("_", "__").replace(".", "_").replace("-", "___").upper()
    if not name.startswith("kwire."):
        variable = f"KAFKA_{variable}"
    assert list(from_environment({variable: "1"})) == [name]


def test_unknown_names_from_file_and_environment_are_kept_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partition=2\nssl.key.password=hush\n")
    config = load(files=[file], environment={"KAFKA_NO_SUCH_THING": "1"})
    assert config.values["num.partition"].text == "2"
    assert config.values["no.such.thing"].text == "1"
    assert config.values["ssl.key.password"].setting.is_sensitive
    assert f"{file}: unknown setting num.partition (did you mean num.partitions?)" in config.warnings
    assert "environment variable KAFKA_NO_SUCH_THING: unknown setting no.such.thing" in config.warnings


def test_an_unknown_name_in_a_flag_is_refused_with_the_nearest_name() -> None:
    refusal = refused(settings=["log.retention.m=1"])
    assert refusal == "--set log.retention.m=1: unknown setting log.retention.m (did you mean log.retention.ms?)"


@pytest.mark.parametrize("source", ["file", "environment", "flag"])
def test_a_renamed_setting_is_accepted_under_its_former_name_with_a_warning(tmp_path: Path, source: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("kwire.rooms.tail.events=7\n" if source == "file" else "")
    config = load(
        files=[file],
        environment={"KWIRE_ROOMS_TAIL_EVENTS": "7"} if source == "environment" else {},
        settings=["kwire.rooms.tail.events=7"] if source == "flag" else [],
    )
    assert config.rooms.recent_events_max == 7
    assert "kwire.rooms.tail.events" not in config.values
    (warning,) = config.warnings
    assert "kwire.rooms.tail.events has been renamed to kwire.rooms.recent.events" in warning


def test_a_former_name_has_the_precedence_of_its_source(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("kwire.rooms.tail.events=7\nkwire.rooms.recent.events=8\n")
    assert load(files=[file]).rooms.recent_events_max == 8
    assert load(files=[file], settings=["kwire.rooms.tail.events=9"]).rooms.recent_events_max == 9


def test_a_refusal_of_a_former_name_names_its_source() -> None:
    refusal = refused(settings=["kwire.rooms.tail.events=many"])
    assert refusal.startswith("--set kwire.rooms.tail.events=many: Invalid value many for configuration kwire.rooms.")


def test_former_names_are_no_settings_and_belong_to_static_ones() -> None:
    assert not FORMER_NAMES.keys() & SETTINGS.keys()
    # Stored dynamic values are not renamed.
    assert not any(SETTINGS[name].is_dynamic for name in FORMER_NAMES.values())


def test_a_refusal_names_source_setting_value_and_what_is_expected(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=many\n")
    assert refused(files=[file]) == (
        f"{file}: Invalid value many for configuration num.partitions: Not a number of type INT"
    )
    assert refused(environment={"KAFKA_NUM_PARTITIONS": "0"}) == (
        "environment variable KAFKA_NUM_PARTITIONS: "
        "Invalid value 0 for configuration num.partitions: Value must be at least 1"
    )


def test_all_wrong_values_are_told_at_once() -> None:
    assert len(refused(settings=["num.partitions=x", "node.id=-1", "no.such=1"]).splitlines()) == 3


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("num.partitions", "expected name=value"),
        ("listeners=PLAINTEXT://127.0.0.1", "Expected host:port"),
        ("listeners=127.0.0.1:9092", "Expected NAME://host:port"),
        ("listeners=PLAINTEXT://127.0.0.1:70000", "port from 0 to 65535"),
        ("listeners=INSIDE://127.0.0.1:9092", "no entry in listener.security.protocol.map"),
        ("listener.security.protocol.map=PLAINTEXT:NOISE", "NOISE is not supported"),
        ("listeners=SSL://127.0.0.1:9092", "TLS needs a private key and a certificate"),
        ("listeners=", "at least one listener"),
        ("listeners=PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "different name"),
        ("listeners=PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:1", "Each listener must have a different port"),
        ("advertised.listeners=OUTSIDE://host:1", "no entry in listener.security.protocol.map"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "name a host"),
        ("listener.security.protocol.map=PLAINTEXT", "Expected NAME:PROTOCOL"),
        ("log.dirs=/a,/b,/a/", "Each data directory may be named once"),
        ("log.dirs=/a,,/b", "no empty name"),
        ("log.dirs=", "at least one data directory"),
        ("kwire.http.listener=8082", "Expected host:port"),
        ("kwire.log.sync=never", "must be one of: group, os"),
        ("compression.type=rot13", "must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("queued.max.request.bytes=1000", "must be at least socket.request.max.bytes"),
        ("group.max.session.timeout.ms=1", "must be at least group.min.session.timeout.ms"),
        ("auto.create.topics.enable=yes", "either true or false"),
        ("default.replication.factor=3", "a single node stores one replica"),
        ("offsets.topic.replication.factor=3", "a single node stores one replica"),
        ("offsets.topic.segment.bytes=1000", "at least 1048576"),
    ],
)
def test_what_cannot_work_is_refused(assignment: str, problem: str) -> None:
    assert problem in refused(settings=[assignment, "kwire.allow.unauthenticated=true"])


def test_number_beyond_its_type_is_refused() -> None:
    """Nothing could be told of it that can be written back."""
    with pytest.raises(InvalidConfig, match=r"Invalid value 1e999 .*: Not a number of type DOUBLE"):
        load(settings=["log.cleaner.io.max.bytes.per.second=1e999"])


def test_a_missing_file_is_a_clear_refusal(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(files=[tmp_path / "none"])


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "example.test", "[::]"])
def test_other_machines_are_let_in_only_when_that_is_said(host: str) -> None:
    assert "kwire.allow.unauthenticated=true" in refused(kafka=f"{host}:9092")
    assert "kwire.allow.unauthenticated=true" in refused(http=f"{host}:8082")
    config = load(kafka=f"{host}:9092", settings=["kwire.allow.unauthenticated=true"])
    assert config.listeners[0].host == host.strip("[]")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "[::1]"])
def test_loopback_addresses_need_no_permission(host: str) -> None:
    assert load(kafka=f"{host}:9092", http=f"{host}:8082").listeners[0].address.is_loopback


def test_listeners_have_their_own_names() -> None:
    config = load(
        settings=[
            "listeners=inside://127.0.0.1:1, OUTSIDE://localhost:2",
            "advertised.listeners=OUTSIDE://broker.example:9092",
            "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        ]
    )
    assert [str(listener) for listener in config.listeners] == ["INSIDE://127.0.0.1:1", "OUTSIDE://localhost:2"]
    assert config.advertised_listeners == (Listener("OUTSIDE", "PLAINTEXT", "broker.example", 9092),)


def test_an_advertised_listener_must_exist() -> None:
    assert "No listener is named SSL" in refused(
        settings=[
            "listeners=PLAINTEXT://127.0.0.1:1",
            "advertised.listeners=SSL://h:1",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT",
        ]
    )


def test_listeners_are_derived_from_advertised_ones_when_missing() -> None:
    wide = load(settings=["advertised.listeners=PLAINTEXT://broker.example:19092", "kwire.allow.unauthenticated=true"])
    assert wide.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "", 19092),)
    near = load(settings=["advertised.listeners=PLAINTEXT://localhost:19092"])
    assert near.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 19092),)


def test_controller_listeners_of_a_kraft_file_are_left_out() -> None:
    config = load(
        environment={
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        }
    )
    assert config.warnings == ()
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert [listener.name for listener in config.advertised_listeners] == ["PLAINTEXT"]


@given(st.sampled_from(["", "localhost", "10.1.2.3", "::1", "fe80::1%eth0"]), st.integers(0, 65535))
def test_an_address_reads_as_it_is_written(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("  a=b", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("# a=b\n! c=d\n\n \t\ne=f", {"e": "f"}),
        ("a=b\\\n   c\\\nd", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a\\=b\\ c=d\\te\\u0041\\q", {"a=b c": "d\teAq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b \n", {"a": "b "}),
        ("a=x\\", {"a": "x"}),
        ("a=1\x0b2\u2028", {"a": "1\x0b2\u2028"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert decode_properties(text) == pairs


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(InvalidProperties, match="line 2"):
        decode_properties("a=b\nc=\\u12x4\n")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_survive_being_written_with_every_character_escaped(pairs: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))

    def joined(text: str) -> str:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")

    decoded = decode_properties("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in pairs.items()))
    assert {joined(key): joined(value) for key, value in decoded.items()} == pairs


@given(st.text())
def test_any_text_is_read_or_refused_as_properties(text: str) -> None:
    with contextlib.suppress(InvalidProperties):
        assert isinstance(decode_properties(text), dict)


@given(st.sampled_from(sorted(SETTINGS)), st.text(max_size=30))
def test_any_text_for_any_setting_is_taken_or_refused(name: str, text: str) -> None:
    try:
        value = SETTINGS[name].parse(text)
    except InvalidConfig:
        return
    written = format_value(value)
    assert written is not None
    assert SETTINGS[name].parse(written) == value


def test_a_file_that_is_not_utf_8_is_read_as_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("broker.rack=k\u00e4ln".encode("latin-1"))
    assert load(files=[file]).rack == "k\u00e4ln"


def test_secrets_are_not_shown_in_refusals() -> None:
    secret = SETTINGS["cluster.id"].__class__("a.password", Kind.PASSWORD, None, "")
    assert "hush" not in secret.refusal("hush", "too short")


def test_reading_the_configuration_needs_no_heavy_module() -> None:
    heavy = {"asyncio", "aiohttp", "uvloop", "construct", "prometheus_client", "difflib", "typing_extensions"}
    program = "import sys, kwire.config, kwire.config.resources.topic; kwire.config.load(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert heavy & set(loaded.stdout.split()) == set()


def refused(**sources: object) -> str:
    with pytest.raises(InvalidConfig) as refusal:
        load(**sources)  # type: ignore[arg-type]
    return str(refusal.value)


def test_changed_values_win_and_hide_nothing() -> None:
    config = load(settings=["log.retention.hours=2", "max.connections=7"])
    names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    running = with_dynamic(config, {"log.retention.ms": "5"}, {"log.retention.ms": "6", "max.connections": "8"})
    assert [(one.setting.name, one.text, one.config_source) for one in running.values.candidates(*names)] == [
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "6", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert running.network.connections_max == 8
    # The next change starts from what the server was started with.
    again = with_dynamic(running, {}, {})
    assert again.network == config.network
    assert dict(again.values) == dict(config.values)


def test_changed_values_are_judged_like_given_ones() -> None:
    for text, words in (("x", "Not a number of type INT"), ("-1", "at least 0")):
        with pytest.raises(InvalidConfig, match=words):
            with_dynamic(load(), {"max.connections": text}, {})


def test_text_too_long_to_be_told_is_refused() -> None:
    assert "Longer than 32767 bytes" in refused(settings=["broker.rack=" + "ü" * 16384])
    assert load(settings=["broker.rack=" + "x" * 32767]).rack == "x" * 32767
