"""Topics of a bridge: those of its cluster, for the REST API, REST Proxy and the message browser."""

from kwire.streams.event_store.interface import EventTopicDirectory
from kwire.streams.events.partitioning import Partitioner
from kwire.streams.events.publishing import Publisher
from kwire.streams.remote.directory import RemoteTopics
from kwire.streams.remote.log import incarnation_of
from kwire.streams.remote_rooms.rooms import RemoteRooms
from kwire.streams.remote_topics.commands import RemoteTopicCommands
from kwire.web.bridge.services import BridgeTopicListServices
from kwire.web.browse.scan_slots import ScanSlots
from kwire.web.console.topic_list import Kind
from kwire.web.services import PortServices, TopicServices


def topic_list_services(topics: RemoteTopics, rooms: RemoteRooms) -> BridgeTopicListServices:
    def created_ms(name: str, topic_id: bytes) -> int | None:
        record = rooms.records.get(name)
        return record.created_ms if record is not None and record.incarnation == incarnation_of(topic_id) else None

    def kind(name: str, topic_id: bytes) -> Kind:
        if topics.marks.is_event_topic(name, topic_id):
            return "events"
        return "room" if topics.marks.is_room(name, topic_id) else "topic"

    return BridgeTopicListServices(topics, kind, created_ms)


def topic_services(
    port: PortServices,
    topics: RemoteTopics,
    commands: RemoteTopicCommands,
    event_topics: EventTopicDirectory,
    publisher: Publisher,
) -> TopicServices:
    return TopicServices(
        port=port,
        topics=topics,
        commands=commands,
        publisher=publisher,
        partitioner=Partitioner(),
        event_topics=event_topics,
        scan_slots=ScanSlots(),
        last_retention_ms=lambda: None,
        has_message_limits=False,
    )
