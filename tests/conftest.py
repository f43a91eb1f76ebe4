"""Hooks and fixtures of every test run: tests that are left out, that share a worker process or Spark, and the report.

The parts are in tests/support: `needs` (programs and effort), `distribution` (work for pytest-xdist), `durations`
(the slowest tests), `kafka_python_sockets` (sockets that kafka-python leaves open),
`apache_cluster` and `engines` (an Apache Kafka, and what serves HTTP clients: a server, or a bridge over a cluster).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.support.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.spark import SharedSpark

# A property is about what holds, not how fast: on a busy machine a time limit per example fails by chance.
hypothesis.settings.register_profile("kwire", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("kwire")

# The profiles of whoever runs the tests would change where commands connect to.
os.environ["KWIRE_CONFIG"] = os.path.join(os.path.dirname(__file__), "no-profiles.yaml")

pytest_plugins = [
    "tests.support.needs",
    "tests.support.distribution",
    "tests.support.durations",
    "tests.support.kafka_python_sockets",
    "tests.support.apache_cluster",
    "tests.support.engines",
]


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SharedSpark"]:
    """The Java process of all tests that use Spark in the test process."""
    from tests.support.spark import SharedSpark, end_java

    yield SharedSpark(tmp_path_factory.mktemp("spark"))
    end_java()


@pytest.fixture
def spark(shared_spark: "SharedSpark", tmp_path: Path) -> Iterator["SparkSession"]:
    """A session of its own for each test."""
    with shared_spark.session(tmp_path / "spark") as session:
        yield session
