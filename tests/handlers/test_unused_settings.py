"""Broker settings without effect, for all brokers of a cluster: changed where Kafka changes them, refused elsewhere."""

from kwire.config import ConfigSource
from kwire.config.setting import NO_EFFECT
from kwire.errors import ErrorCode
from tests.support.configs import BROKER, HERE, SET, described, edit
from tests.support.node import QuietNode, in_loop

ALL_BROKERS = ""


@in_loop
async def test_what_is_cluster_wide_changes_for_all_brokers(node: QuietNode) -> None:
    name = "num.recovery.threads.per.data.dir"
    assert await edit(node, BROKER, ALL_BROKERS, (SET, name, "7")) == (ErrorCode.NONE, None)
    for broker in (ALL_BROKERS, HERE):
        entry = (await described(node, BROKER, broker))[name]
        assert (entry.value, entry.config_source) == ("7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        assert entry.documentation is not None
        assert entry.documentation.endswith(NO_EFFECT)


@in_loop
async def test_what_is_per_broker_is_refused_for_all_brokers(node: QuietNode) -> None:
    code, message = await edit(node, BROKER, ALL_BROKERS, (SET, "sasl.jaas.config", "hush"))
    assert code == ErrorCode.INVALID_REQUEST
    assert message == (
        "Cannot update these configs at default cluster level, broker id must be specified: [sasl.jaas.config]"
    )


@in_loop
async def test_a_value_that_kafka_refuses_is_refused(node: QuietNode) -> None:
    code, message = await edit(node, BROKER, HERE, (SET, "remote.log.reader.threads", "0"))
    assert code == ErrorCode.INVALID_REQUEST
    assert message == "Invalid value 0 for configuration remote.log.reader.threads: Value must be at least 1"
