"""Where a job runs, and how it reads: what its arguments become for Spark. No Spark is started here."""

import argparse
from pathlib import Path

import pytest

from kwire.pipeline import jars
from kwire.pipeline.server import Server
from kwire.pipeline.session import SessionOptions, add_session_arguments, session_options, spark_conf, warehouse_uri
from kwire.pipeline.source import SourceOptions


def options(*arguments: str) -> SessionOptions:
    parser = argparse.ArgumentParser()
    add_session_arguments(parser)
    return session_options(parser.parse_args(["--warehouse", "/srv/lake", *arguments]), "test")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_a_job_runs_on_this_machine_unless_it_is_told_otherwise() -> None:
    conf = spark_conf(options())
    assert (conf["spark.master"], conf["spark.driver.bindAddress"]) == ("local[*]", "127.0.0.1")
    assert conf["spark.jars.packages"] == ",".join(jars.PACKAGES)
    few = spark_conf(options("--master", "local[2]"))
    assert (few["spark.master"], few["spark.driver.bindAddress"]) == ("local[2]", "127.0.0.1")
    for cluster in ("spark://host:7077", "local-cluster[2,1,1024]"):
        there = spark_conf(options("--master", cluster))
        assert there["spark.master"] == cluster
        assert "spark.driver.bindAddress" not in there


def test_jars_that_were_fetched_once_are_taken_from_there(tmp_path: Path) -> None:
    found = [jars.jar_cache() / "jars" / f"{name}.jar" for name in ("connector", "runtime")]
    uris = ",".join(["file:///elsewhere/other.jar", *(path.as_uri() for path in found)])
    found[0].parent.mkdir(parents=True)
    for path in found:
        path.write_bytes(b"")
    asked = ",".join(jars.PACKAGES)
    jars.save_jar_list(SessionThatSays({"spark.jars": uris, "spark.jars.packages": f"{asked},one:more:1"}))
    assert "spark.jars.packages" in jars.jar_conf(), "jars that somebody else wanted are not noted"
    jars.save_jar_list(SessionThatSays({"spark.jars": uris, "spark.jars.packages": asked}))
    assert jars.jar_conf() == {"spark.jars": ",".join(map(str, found))}
    assert spark_conf(options("--conf", "spark.jars=mine.jar"))["spark.jars"].endswith("runtime.jar,mine.jar")
    found[1].unlink()
    assert "spark.jars.packages" in jars.jar_conf()


def test_jars_are_of_the_spark_that_is_installed() -> None:
    pyspark = pytest.importorskip("pyspark")
    assert pyspark.__version__ == jars.SPARK_VERSION


class SessionThatSays:
    """What is asked of a session there: its settings."""

    def __init__(self, conf: dict[str, str]) -> None:
        self._conf = conf

    @property
    def sparkContext(self) -> "SessionThatSays":
        return self

    def getConf(self) -> dict[str, str]:
        return self._conf


def test_spark_submit_chooses_cluster_and_jars_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    conf = spark_conf(options())
    assert not {"spark.master", "spark.jars.packages"} & set(conf)
    assert conf["spark.sql.defaultCatalog"] == "lake"


def test_the_catalog_is_the_warehouse_or_a_rest_catalog() -> None:
    own = spark_conf(options())
    assert own["spark.sql.catalog.lake.type"] == "hadoop"
    assert own["spark.sql.catalog.lake.warehouse"] == "file:///srv/lake"
    rest = spark_conf(options("--catalog-uri", "http://catalog:8181"))
    assert rest["spark.sql.catalog.lake.type"] == "rest"
    assert rest["spark.sql.catalog.lake.uri"] == "http://catalog:8181"


def test_what_is_said_with_conf_counts_most() -> None:
    assert spark_conf(options("--conf", "spark.driver.memory=4g"))["spark.driver.memory"] == "4g"
    both = spark_conf(options("--conf", "spark.sql.extensions=mine", "--conf", "spark.jars.packages=a:b:1"))
    assert both["spark.sql.extensions"].endswith("IcebergSparkSessionExtensions,mine")
    assert both["spark.jars.packages"] == ",".join((*jars.PACKAGES, "a:b:1"))
    for wrong in ("spark.driver.memory", "driver.memory=4g"):
        with pytest.raises(ValueError, match=r"--conf: expected spark\.KEY=VALUE"):
            options("--conf", wrong)


def test_a_warehouse_is_a_directory_or_a_uri() -> None:
    assert warehouse_uri("/srv/a lake") == warehouse_uri("file:/srv/a lake") == "file:///srv/a lake"
    assert warehouse_uri("here") == f"file://{Path.cwd()}/here"
    for uri in ("file:///srv/lake", "hdfs://name/lake", "s3a://bucket/lake"):
        assert warehouse_uri(uri) == uri


def test_the_source_reads_what_is_committed_with_headers_and_bounds() -> None:
    said = SourceOptions(Server("host:1", "http://host:2"), fails_on_data_loss=False, records_per_batch_max=5)
    found = said.as_spark("topic")
    assert found["subscribe"] == "topic"
    assert found["kafka.bootstrap.servers"] == "host:1"
    assert (found["failOnDataLoss"], found["maxOffsetsPerTrigger"]) == ("false", "5")
    assert (found["includeHeaders"], found["kafka.isolation.level"]) == ("true", "read_committed")
