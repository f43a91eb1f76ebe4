"""The metadata log: its end offset is the number of commits, also after the journal was rewritten."""

from kwire.broker.admin.metadata_log import MetadataLog
from kwire.metastore import Change, embedded
from kwire.metastore.interface import CHANGES_PER_COMMIT_MAX
from tests.support.node import DIRECTORY_ID, QuietNode, in_loop


@in_loop
async def test_every_commit_is_an_offset_that_no_restart_takes_back(node: QuietNode) -> None:
    assert node.services.metadata_log.end_offset == 0
    await node.create("a")
    await node.create("b", 3)
    assert node.services.metadata_log.end_offset == 2
    assert node.services.metadata_log.leader_epoch == 0
    node.restart()
    log = node.services.metadata_log
    assert (log.end_offset, log.leader_epoch, log.directory_id) == (2, 1, DIRECTORY_ID)


@in_loop
async def test_forgotten_history_keeps_the_end(node: QuietNode) -> None:
    log = MetadataLog(node.metastore, 0, DIRECTORY_ID)
    revision = 0
    count = embedded.HISTORY_WRITES_MIN // CHANGES_PER_COMMIT_MAX + 2
    for _ in range(count):
        # One key per change of a commit, so that the history grows quickly.
        changes = [Change(f"key-{number}", revision, revision) for number in range(CHANGES_PER_COMMIT_MAX)]
        revision = await node.metastore.commit(changes)
    assert log.end_offset == revision == count
    node.restart()
    assert node.metastore.revision == count
