"""kwire backup create: backs up a running server over its HTTP port."""

import argparse
from pathlib import Path
from typing import Any

from kwire.cli.backup.byte_progress import byte_progress
from kwire.cli.backup.creation import check_target, create_backup, server_snapshot
from kwire.cli.backup.format import Manifest
from kwire.cli.connection.options import add_http_options, http_client_of
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error
from kwire.progress import size_text


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="the backup; the folder must not exist, or be empty"
    )
    parser.add_argument(
        "--secrets-key",
        metavar="FILE",
        type=Path,
        help="also back up this key file (secrets.key), with which secrets of webhooks are encrypted",
    )
    parser.add_argument(
        "--skip-offline", action="store_true", help="back up the rest if partitions or data directories are offline"
    )
    add_http_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    check_target(options.folder)
    with (
        http_client_of(options) as client,
        server_snapshot(client) as snapshot,
        byte_progress("backup", snapshot.facts["size_bytes"]) as on_bytes,
    ):
        manifest = create_backup(
            snapshot,
            options.folder,
            secrets_key=options.secrets_key,
            allows_offline=options.skip_offline,
            on_bytes=on_bytes,
        )
    for name, reason in manifest.offline.items():
        print_error(f"not in the backup: {name}: {reason}")
    print_object(facts_of(manifest, options.folder), options, lambda: print_text(manifest, options.folder))
    return 0


def facts_of(manifest: Manifest, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "cluster_id": manifest.cluster_id,
        "created_ms": manifest.created_ms,
        "server_version": manifest.server_version,
        "topics": manifest.topics,
        "partitions": manifest.partitions,
        "files": len(manifest.files),
        "size_bytes": manifest.size_bytes,
        "offline": manifest.offline,
        "has_secrets_key": manifest.has_secrets_key,
    }


def print_text(manifest: Manifest, folder: Path) -> None:
    print(
        f"{folder}: {manifest.topics:,} topics, {manifest.partitions:,} partitions, {len(manifest.files):,} files, "
        f"{size_text(manifest.size_bytes)}"
    )
