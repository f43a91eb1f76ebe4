"""Jobs of the pipeline, run by a test in its own process on the Spark session there is."""

import argparse
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kwire.pipeline import jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(*words: str) -> int:
    """The exit code of `kwire pipeline WORDS…`."""
    parser = argparse.ArgumentParser()
    jobs.add(parser)
    return jobs.run(parser.parse_args(words))


def warehouse_of(spark: "SparkSession") -> str:
    """The directory of the session's catalog, as it was begun: a job with another one changes the setting alone."""
    return unquote(urlsplit(str(spark.sparkContext.getConf().get("spark.sql.catalog.lake.warehouse"))).path)
