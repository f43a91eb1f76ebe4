"""Changes of more entries than one commit of the metadata store may have: each part is whole, also after a crash."""

import os

import pytest

from kwire.access.users.scram_credential import ScramCredential, ScramMechanism
from kwire.access.users.users import CredentialChange, Users
from kwire.broker.topics.adoption import Adoption
from kwire.broker.topics.catalogue import ADDED_PER_COMMIT_MAX
from kwire.broker.topics.startup import NODE_KEY
from kwire.broker.topics.topics import NewTopic
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import EmbeddedMetaStore
from kwire.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from storage.data_directory.partition_metadata import METADATA_NAME, encode_metadata
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import StorageError
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop

MANY = 250


@in_loop
async def test_many_topics_are_created_deleted_and_marked(node: QuietNode) -> None:
    made = await node.topics.create([NewTopic(f"t{number}", 1, {}) for number in range(MANY)])
    assert len(made) == MANY
    assert node.metastore.revision == -(-MANY // ADDED_PER_COMMIT_MAX)
    await node.topics.marks.commit((topic.topic_id, 0, 5000) for topic in made)
    node.restart()
    assert len(node.topics) == MANY
    topics = list(node.topics)
    assert all(node.topics.marks.mark_of(topic.topic_id, 0) == 5000 for topic in topics)
    deleted = await node.topics.delete_idle(topics, lambda topic: topic.name != "t7")
    assert len(deleted) == MANY - 1
    node.restart()
    assert node.topics.catalogue.names() == ["t7"]
    assert len(list(node.metastore.entries("offset-marks/"))) == 1


@in_loop
async def test_topics_with_large_settings_are_created_one_by_one(node: QuietNode) -> None:
    """Together they have more than 1 MiB; CreateTopics then creates each in a commit of its own."""
    configs = {"leader.replication.throttled.replicas": ",".join(["0:0"] * 8000)}
    new = [NewTopic(f"t{number}", 1, configs) for number in range(ADDED_PER_COMMIT_MAX)]
    with pytest.raises(KafkaError) as caught:
        await node.topics.create(new)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert len(node.topics) == 0
    asked = [
        CreatableTopic(
            name=one.name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        for one in new
    ]
    answer = await node.ask(CreateTopicsRequest(topics=asked, timeout_ms=1000, validate_only=False), 7)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}
    assert len(node.topics) == ADDED_PER_COMMIT_MAX


@in_loop
async def test_many_users_are_changed(node: QuietNode) -> None:
    users = Users(node.metastore)
    credential = ScramCredential(bytes(1024), 4096, bytes(32), bytes(32))
    names = [f"user-{number}" for number in range(MANY)]
    await users.alter(CredentialChange(name, ScramMechanism.SHA_256, credential) for name in names)
    assert sorted(users.names()) == sorted(names)
    users.close()
    again = Users(node.metastore)
    assert sorted(again.names()) == sorted(names)
    again.close()


@in_loop
async def test_interrupted_adoption_is_continued_by_the_next(node: QuietNode) -> None:
    """A crash at every commit. The node's entry is there as soon as a topic is, so no epoch is used twice."""
    node.close()
    directory = str(node.directory)
    for name in (JOURNAL_NAME, MIRROR_NAME):
        (node.directory / name).unlink(missing_ok=True)
    for number in range(MANY):
        folder = node.directory / f"t{number}-0"
        folder.mkdir()
        (folder / METADATA_NAME).write_bytes(encode_metadata(os.urandom(16)))
    adopted = -1
    for _ in range(10):
        files = FaultyFiles()
        # Each commit syncs both copies of the journal: the second commit of this run fails.
        files.fail_next("fdatasync", after=2)
        try:
            await Adoption([directory], files, node.config).run(frozenset())
        except StorageError:
            files.cut_power()
        lanes = DiskLanes()
        store = EmbeddedMetaStore.open(directory, FaultyFiles(), lanes)
        before, adopted = adopted, len(list(store.entries("topics/")))
        assert adopted > before
        assert store.get(NODE_KEY) is not None
        store.close()
        lanes.close()
        if adopted == MANY:
            return
    raise AssertionError("the adoption did not end")
