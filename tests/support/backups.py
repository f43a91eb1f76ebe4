"""Backups of a node in this process: the files of a snapshot written as `kwire backup create` writes them."""

import hashlib
from pathlib import Path

from kwire.broker.backup.snapshot_builder import BuiltSnapshot, SnapshotBuilder
from kwire.cli.backup.format import BackupFile, Manifest, read_backup, write_end
from kwire.cli.backup.restoration import Restoration, Restored
from storage.snapshot.links import SnapshotLinks
from tests.support.node import CLUSTER_ID, NODE_ID, QuietNode


def new_builder(node: QuietNode, snapshot_id: str = "one") -> SnapshotBuilder:
    links = SnapshotLinks(snapshot_id, node.store.data_dirs, node.files)
    return SnapshotBuilder(node.topics, node.store, node.metastore, node.files, links)


def write_backup(built: BuiltSnapshot, target: Path) -> Path:
    """A backup of this snapshot."""
    checksums: dict[str, str] = {}
    for one in built.files:
        path = target / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        data = Path(one.link).read_bytes()[: one.size_bytes]
        assert len(data) == one.size_bytes, f"{one.path} has {len(data)} bytes of {one.size_bytes}"
        path.write_bytes(data)
        checksums[one.path] = hashlib.sha256(data).hexdigest()
    manifest = Manifest(
        created_ms=0,
        server_version="0",
        cluster_id=CLUSTER_ID,
        node_id=NODE_ID,
        revision=built.revision,
        topics=built.topic_count,
        partitions=built.partition_count,
        offline=dict(built.offline),
        files=[BackupFile(one.path, one.size_bytes) for one in built.files],
    )
    write_end(target, manifest, checksums)
    return target


def restore(backup: Path, *data_dirs: Path) -> Restored:
    manifest, checksums = read_backup(backup)
    return Restoration(backup, manifest, checksums, data_dirs, on_bytes=lambda size: None).run()
