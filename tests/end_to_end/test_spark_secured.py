"""Spark reads and writes over SASL_SSL, as a user that has only the rights which this needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password, succeeded
from tests.support.cli import run_here
from tests.support.clients import Topics, produce_values, read_values
from tests.support.server import KwireProcess
from tests.support.spark_streams import PROMPT_FETCHES, STREAM_TIMEOUT_S, source, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PASSWORD = "s3cr3t-of-spark"
ROWS = [f"row-{number}".encode() for number in range(50)]


class SecuredServer:
    """A server with ACLs. Spark uses its SASL_SSL listener; the test itself is a super user on the other one."""

    def __init__(self, directory: Path) -> None:
        tls = directory / "tls"
        succeeded(run_here("tls", "init", "--dir", tls, "127.0.0.1"))
        secured, own = unused_port(), unused_port()
        settings = {
            "listeners": f"SASL_SSL://127.0.0.1:{secured},PLAINTEXT://127.0.0.1:{own}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{tls}/server.pem",
            "kwire.authorizer": "acl",
            "super.users": "User:ANONYMOUS",
        }
        self.process = KwireProcess(directory, settings=settings, kafka_port=None)
        self.own = f"127.0.0.1:{own}"
        self.secured = f"127.0.0.1:{secured}"
        self.options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="spark" password="{PASSWORD}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": f"{tls}/ca.pem",
        }

    def allow(self, operations: str, topic: str) -> None:
        rule = ("--principal", "User:spark", "--allow", operations, "--topic", topic)
        succeeded(run_here("acl", "add", *rule, "--bootstrap-server", self.own))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    server.process.start()
    try:
        server.process.ready()
        succeeded(run_with_password(PASSWORD, "user", "create", "spark", "--bootstrap-server", server.own))
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()


def write(frame: Any, server: SecuredServer, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": server.secured, "topic": topic, **server.options}
    return frame.format("kafka").options(**options)


def test_spark_needs_read_on_its_source_and_write_on_its_sink(
    spark: "SparkSession", secured: SecuredServer, tmp_path: Path
) -> None:
    topics = Topics(secured.own)
    try:
        read_topic, written_topic = topics.create("spark-in", partitions=2), topics.create("spark-out")
    finally:
        topics.close()
    for partition in range(2):
        produce_values(secured.own, read_topic, ROWS[partition::2], partition=partition)
    secured.allow("read", read_topic)
    secured.allow("write", written_topic)

    batch = source(spark, secured.secured, subscribe=read_topic, startingOffsets="earliest", **secured.options)
    assert sorted(values(batch)) == sorted(ROWS)
    write(batch.select("value").write, secured, written_topic).save()
    assert sorted(read_values(secured.own, written_topic)) == sorted(ROWS)

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", secured.secured)
    where = {"subscribe": read_topic, "startingOffsets": "earliest"}
    stream = reader.options(**PROMPT_FETCHES, **where, **secured.options).load().select("value").writeStream
    checkpoint = str(tmp_path / "checkpoint")
    query = write(stream, secured, written_topic).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    running = query.start()
    assert running.awaitTermination(STREAM_TIMEOUT_S), "the query did not end"
    assert running.exception() is None
    assert sorted(read_values(secured.own, written_topic)) == sorted(ROWS * 2)

    # One right more would be one too many: the source cannot be written, nor the sink read.
    with pytest.raises(Exception, match="Not authorized to access topics"):
        write(batch.limit(1).select("value").write, secured, read_topic).save()
    refused = {"subscribe": written_topic, "fetchOffset.numRetries": "0"}
    with pytest.raises(Exception, match=r"Not authorized to access topics|TopicAuthorization"):
        values(source(spark, secured.secured, **refused, **secured.options))
