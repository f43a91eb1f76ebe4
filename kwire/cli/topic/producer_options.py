"""The options of verbs that write records."""

import argparse

from kwire.cli.framework.errors import UsageError
from kwire.cli.kafka.producer import ACKS_ALL, BATCH_BYTES_DEFAULT, BATCH_BYTES_MIN, ProducerSettings
from storage.batch.format import GZIP, LZ4, NONE, SNAPPY, ZSTD

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}
BATCH_BYTES_MAX = 64 * 1024 * 1024


def add_producer_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `producer_settings_of` reads."""
    group = parser.add_argument_group("producer")
    group.add_argument("-z", "--compression", choices=CODECS, default="none", help="the codec of the batches (none)")
    group.add_argument(
        "--acks", choices=ACKS, default="all", help="who confirms a record: all replicas (default), 1, or nobody (0)"
    )
    group.add_argument(
        "--no-idempotence",
        action="store_true",
        help="do without the numbers by which the server recognises repeated batches (implied by --acks 1 and 0)",
    )
    group.add_argument(
        "--batch-size",
        metavar="BYTES",
        type=int,
        default=BATCH_BYTES_DEFAULT,
        help=f"the size of a batch before compression ({BATCH_BYTES_DEFAULT})",
    )


def producer_settings_of(options: argparse.Namespace) -> ProducerSettings:
    """Return the settings of the options. Raises UsageError."""
    if not BATCH_BYTES_MIN <= options.batch_size <= BATCH_BYTES_MAX:
        raise UsageError(f"--batch-size: expected {BATCH_BYTES_MIN} to {BATCH_BYTES_MAX}, got {options.batch_size}")
    acks = ACKS[options.acks]
    return ProducerSettings(
        acks=acks,
        is_idempotent=acks == ACKS_ALL and not options.no_idempotence,
        codec=CODECS[options.compression],
        batch_bytes=options.batch_size,
    )
