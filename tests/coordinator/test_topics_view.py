"""The coordinator's view of topics: the catalogue and its revision."""

from pathlib import Path

from kwire.coordinator.group.topics_view import CatalogueView, NoTopics, TopicShape
from tests.support.node import QuietNode, in_loop


@in_loop
async def test_view_follows_the_catalogue(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        view = CatalogueView(node.topics.catalogue)
        revisions = [view.revision]

        def has_moved() -> bool:
            revisions.append(view.revision)
            return revisions[-1] != revisions[-2]

        assert view.find("t") is None
        topic = await node.create("t", 1)
        assert has_moved()
        assert view.find("t") == TopicShape(topic.topic_id, 1)
        assert view.name_of(topic.topic_id) == "t"
        assert list(view.names()) == ["t"]
        await node.topics.create_partitions(topic, 3)
        assert has_moved()
        assert view.find("t") == TopicShape(topic.topic_id, 3)
        # Settings are nothing that a group depends on.
        await node.topics.configure(topic, {"retention.ms": "1000"})
        assert not has_moved()
        await node.topics.delete(topic)
        assert has_moved()
        assert view.find("t") is None
        assert view.name_of(topic.topic_id) is None
        assert list(view.names()) == []


def test_coordinator_without_topics_finds_none() -> None:
    view = NoTopics()
    assert (view.find("t"), view.name_of(b"t"), tuple(view.names())) == (None, None, ())
