"""The journal of the metadata store, shown to Kafka admin clients as partition 0 of `__cluster_metadata`.

Each commit is shown as one record, so the log end offset is the number of commits ever made. A commit is durable before
it becomes visible, so the high watermark equals the log end offset. This node is the leader.
"""

from kwire.metastore import MetaStore

METADATA_TOPIC = "__cluster_metadata"


class MetadataLog:
    """A quorum with one voter, this node. `directory_id` is the id of the directory with the journal."""

    def __init__(self, metastore: MetaStore, leader_epoch: int, directory_id: bytes) -> None:
        self._metastore = metastore
        self.leader_epoch = leader_epoch
        self.directory_id = directory_id

    @property
    def end_offset(self) -> int:
        return self._metastore.revision
