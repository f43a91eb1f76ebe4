"""kwire backup restore: makes data directories from a backup."""

import argparse
import shlex
from pathlib import Path

from kwire.cli.backup.byte_progress import byte_progress
from kwire.cli.backup.format import read_backup
from kwire.cli.backup.restoration import CLUSTER_ID_LENGTH, Restoration
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error
from kwire.progress import size_text


def add(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a backup")
    parser.add_argument(
        "data_dirs",
        metavar="DATA_DIR",
        nargs="+",
        type=Path,
        help="the new data directories, which must not exist, or be empty; the first one gets the catalogue",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--cluster-id", metavar="ID", help="give the restored server this cluster id (default: the old one)"
    )
    group.add_argument(
        "--new-cluster-id", action="store_true", help="give it a new cluster id, for a copy beside the old server"
    )
    parser.add_argument(
        "--secrets-key",
        metavar="FILE",
        type=Path,
        help="the key file of the old server, if the backup does not have it",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.cluster_id is not None and len(options.cluster_id) != CLUSTER_ID_LENGTH:
        raise UsageError(f"--cluster-id takes {CLUSTER_ID_LENGTH} characters, as kwire cluster info shows them")
    manifest, checksums = read_backup(options.folder)
    with byte_progress("restore", manifest.size_bytes) as on_bytes:
        restored = Restoration(
            options.folder,
            manifest,
            checksums,
            options.data_dirs,
            cluster_id=options.cluster_id,
            is_new_cluster=options.new_cluster_id,
            secrets_key=options.secrets_key,
            on_bytes=on_bytes,
        ).run()
    if restored.needs_secrets_key:
        print_error(
            "there are encrypted secrets of webhooks, and the backup has no key for them: copy secrets.key of the old "
            f"server to {options.data_dirs[0]} before the first start"
        )
    directories = ",".join(map(str, options.data_dirs))

    def show() -> None:
        print(
            f"restored {restored.topic_count:,} topics, {restored.partition_count:,} partitions, "
            f"{size_text(restored.size_bytes)}; cluster id {restored.cluster_id}"
        )
        print(f"start the server: kwire serve --data-dir {shlex.quote(directories)}")

    print_object({"data_dirs": [str(one) for one in options.data_dirs], **restored._asdict()}, options, show)
    return 0
