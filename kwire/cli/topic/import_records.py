"""kwire topic import: writes the records of a file to a topic."""

import argparse
from contextlib import closing
from pathlib import Path

from kwire.cli.connection.options import add_kafka_options
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.progress import progress_bar
from kwire.cli.kafka.producer import Producer
from kwire.cli.kafka.transport import cluster_of
from kwire.cli.records.files import FORMATS, READERS, format_of
from kwire.cli.records.record import InvalidInput
from kwire.cli.topic.producer_options import add_producer_options, producer_settings_of
from kwire.cli.topic.written import after_bad_input, print_unfinished, print_written

RECORDS_PER_SHOW = 1000


def add(parser: CommandParser) -> None:
    parser.description = (
        "Write the records of a file that kwire topic export has made to a topic. Keys, values, headers, timestamps\n"
        "and partitions are kept, offsets are new."
    )
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", type=Path, required=True, help="the file to read")
    parser.add_argument("--format", choices=FORMATS, help="jsonl, csv or parquet (default: the end of the file name)")
    parser.add_argument(
        "--repartition", action="store_true", help="choose partitions by key instead of those in the file"
    )
    add_producer_options(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    try:
        read = READERS[format_of(options.format, options.file)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    settings = producer_settings_of(options)
    with open(options.file, "rb") as file, cluster_of(options) as cluster:
        cluster.load_topics([options.name], may_create=True)
        known = set(cluster.partitions(options.name))
        producer = Producer(cluster, options.name, settings)
        size = options.file.stat().st_size
        try:
            with closing(progress_bar(f"import {options.name}", size)) as bar:
                for number, record in enumerate(read(file)):
                    partition = None if options.repartition else record.partition
                    if partition is not None and partition not in known:
                        raise InvalidInput(
                            f"record {number + 1} is of partition {partition}, and {options.name} has only "
                            f"{len(known)}: add partitions with kwire topic add-partitions, or use --repartition"
                        )
                    producer.add(record.key, record.value, record.headers, record.timestamp_ms, partition)
                    if number % RECORDS_PER_SHOW == 0:
                        bar.show(file.tell())
                producer.flush()
        except InvalidInput as error:
            raise InvalidInput(f"{options.file}: {error}; {after_bad_input(producer)}") from None
        except BaseException:
            print_unfinished(producer)
            raise
    print_written(producer, options)
