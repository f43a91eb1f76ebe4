"""The works of this family, and the function that runs them and prints the table."""

from collections.abc import Sequence
from dataclasses import replace

from benchmark.access import acl_cost, key_cost, publish_cost, tls_cost
from benchmark.access.measures import measures
from benchmark.access.options import parse
from benchmark.family import APACHE_KAFKA, run_family
from benchmark.samples import Sample

WORKS = (acl_cost.WORK, tls_cost.WORK, key_cost.WORK, publish_cost.WORK)
# A row says what kwire stands beside: the same server without logins, or Apache Kafka.
BESIDE = replace(APACHE_KAFKA, titles=("beside", "beside"))


def run_access_works(arguments: Sequence[str]) -> list[Sample]:
    return run_family(parse(arguments), WORKS, measures(), BESIDE)
