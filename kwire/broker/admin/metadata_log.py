"""The journal of the metadata store as Kafka's admins know it: partition 0 of `__cluster_metadata`, led by this node.

Each commit is one record, so the end offset is the number of commits ever made. A commit is durable before anybody sees
it, so the high watermark is the end.
"""

from kwire.metastore import MetaStore

METADATA_TOPIC = "__cluster_metadata"


class MetadataLog:
    """One voter, this node; `directory_id` is that of the directory which holds the journal."""

    def __init__(self, metastore: MetaStore, leader_epoch: int, directory_id: bytes) -> None:
        self._metastore = metastore
        self.leader_epoch = leader_epoch
        self.directory_id = directory_id

    @property
    def end_offset(self) -> int:
        return self._metastore.revision
