"""Every broker setting of Apache Kafka is known here, with its type and default, and can be changed as there."""

from pathlib import Path

from kwire.config import SETTINGS, Setting, load
from kwire.config.setting import format_value
from kwire.config.unused import UNUSED_SECTIONS
from tests.support.apache_kafka_configs import NO_VALUE, broker_settings

KAFKA = broker_settings()
UNUSED = {setting.name: setting for section in UNUSED_SECTIONS.values() for setting in section}

# Kafka's default is for three brokers, has no meaning here, or is one that docs/configuration.md says is different.
OTHER_DEFAULTS = {
    "broker.id",
    "controller.listener.names",
    "group.initial.rebalance.delay.ms",
    "listeners",
    "log.cleaner.io.max.bytes.per.second",
    "log.dir",
    "log.dirs",
    "max.connections",
    "node.id",
    "offsets.topic.replication.factor",
    "process.roles",
    "queued.max.request.bytes",
    "sasl.enabled.mechanisms",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
# Kafka opens and closes listeners while it runs.
FIXED_HERE = {"listeners", "listener.security.protocol.map"}


def mode(setting: Setting) -> str:
    if setting.is_per_listener:
        return "per-listener"
    if setting.is_per_broker:
        return "per-broker"
    return "cluster-wide" if setting.is_dynamic else "read-only"


def test_every_broker_setting_of_kafka_is_known() -> None:
    assert len(KAFKA) == 340
    assert KAFKA.keys() - SETTINGS.keys() == set()


def test_types_defaults_and_modes_are_those_of_kafka() -> None:
    for name, kafka in KAFKA.items():
        here = SETTINGS[name]
        assert (here.kind.name, here.is_sensitive) == (kafka.kind, kafka.is_sensitive), name
        default = NO_VALUE if here.default is None else format_value(here.default)
        assert (default == kafka.default) == (name not in OTHER_DEFAULTS), name
        assert mode(here) == ("read-only" if name in FIXED_HERE else kafka.mode), name


def test_documentation_says_what_is_not_used() -> None:
    assert len(UNUSED) > 150
    for setting in SETTINGS.values():
        assert setting.description.endswith("kwire accepts this setting but does not use it.") != setting.has_effect
        assert setting.description.startswith(setting.documentation)
    assert not any(setting.has_effect for setting in UNUSED.values())


def test_settings_that_are_not_used_come_from_every_source_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("sasl.kerberos.service.name=kafka\nssl.keystore.password=hush\nreplica.lag.time.max.ms=10000\n")
    config = load(
        files=[file],
        environment={"KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE": "true"},
        settings=["metadata.log.dir=/metadata", "num.replica.fetchers=4"],
    )
    assert config.warnings == ()
    values = config.values
    assert values["sasl.kerberos.service.name"].value == "kafka"
    assert values["replica.lag.time.max.ms"].value == 10000
    assert values["remote.log.storage.system.enable"].value is True
    assert values["metadata.log.dir"].value == "/metadata"
    assert values["num.replica.fetchers"].value == 4
