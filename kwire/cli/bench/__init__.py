"""kwire bench: a short load against any Kafka server, on a topic of its own that is deleted afterwards."""

import argparse
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kwire.cli.bench.load import Load, Percentiles, Rate, consume, end_to_end, produce
from kwire.cli.bench.topic import create_topic, delete_topic
from kwire.cli.connection.options import add_kafka_options
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, is_data, print_data, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.transport import cluster_of
from kwire.cli.topic.producer_options import add_producer_options, producer_settings_of

TOPIC_PREFIX = "kwire-bench-"
RECORDS_DEFAULT, RECORDS_MAX = 1_000_000, 1_000_000_000
SECONDS_DEFAULT, SECONDS_MAX = 10.0, 3600.0
SIZE_DEFAULT, SIZE_MAX = 100, 1_000_000
PARTITIONS_MAX = 1000
LATENCY_RECORDS_DEFAULT = 1000
RATE_COLUMNS = ("work", "records", "seconds", "records_per_s", "mb_per_s")


def add(parser: CommandParser) -> None:
    parser.description = (
        "Measure a Kafka server: write records, read them, and measure how long a record takes from a producer to a\n"
        "consumer. Each part ends after --seconds or --records. The topic has a new name, "
        f"{TOPIC_PREFIX}…, and is\ndeleted at the end."
    )
    parser.add_argument("--records", metavar="N", type=int, default=RECORDS_DEFAULT, help="records to write (1000000)")
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=SECONDS_DEFAULT, help="the longest time of each part (10)"
    )
    parser.add_argument("--record-size", metavar="BYTES", type=int, default=SIZE_DEFAULT, help="size of a value (100)")
    parser.add_argument("--partitions", metavar="N", type=int, default=1, help="partitions of the topic (1)")
    parser.add_argument(
        "--latency-records",
        metavar="N",
        type=int,
        default=LATENCY_RECORDS_DEFAULT,
        help=f"records of the latency part ({LATENCY_RECORDS_DEFAULT}; 0 leaves it out)",
    )
    add_producer_options(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    _check(options)
    settings = producer_settings_of(options)
    load = Load(options.records, options.seconds, options.record_size)
    with cluster_of(options) as cluster, _own_topic(cluster, options.partitions) as topic:
        _say("writing")
        written = produce(cluster, topic, load, settings)
        _say("reading")
        read = consume(cluster, topic, load)
        latency = None
        if options.latency_records:
            _say("measuring latency")
            latency = end_to_end(cluster, topic, options.latency_records, load, settings)
    _print(options, topic, written, read, latency)


@contextmanager
def _own_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """Create a topic with a new name, and delete it at the end, also after an error or Ctrl-C."""
    topic = TOPIC_PREFIX + secrets.token_hex(8)
    create_topic(cluster, topic, partitions)
    try:
        yield topic
    finally:
        delete_topic(cluster, topic)


def _print(options: argparse.Namespace, topic: str, written: Rate, read: Rate, latency: Percentiles | None) -> None:
    if is_data(options):
        found: dict[str, Any] = {
            "topic": topic,
            "record_size": options.record_size,
            "partitions": options.partitions,
            "produce": written._asdict(),
            "consume": read._asdict(),
            "end_to_end_ms": None if latency is None else latency._asdict(),
        }
        print_data(found, options)
        return
    rows = [
        {
            "work": work,
            "records": rate.records,
            "seconds": f"{rate.seconds:.2f}",
            "records_per_s": f"{rate.records_per_s:,.0f}",
            "mb_per_s": f"{rate.mb_per_s:.1f}",
        }
        for work, rate in (("produce", written), ("consume", read))
    ]
    print_rows(rows, RATE_COLUMNS, options)
    if latency is not None:
        times = ", ".join(f"{name} {value:.2f} ms" for name, value in latency._asdict().items() if name != "records")
        print(f"end to end, {latency.records:,} records one after another: {times}")


def _check(options: argparse.Namespace) -> None:
    for name, value, least, most in (
        ("--records", options.records, 1, RECORDS_MAX),
        ("--seconds", options.seconds, 0.1, SECONDS_MAX),
        ("--record-size", options.record_size, 1, SIZE_MAX),
        ("--partitions", options.partitions, 1, PARTITIONS_MAX),
        ("--latency-records", options.latency_records, 0, RECORDS_MAX),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name}: expected {least} to {most}, got {value}")


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"kwire: {what}", file=sys.stderr)
