"""Giving up a large message in chunks."""

from kwire.wire.chunked_release import ELEMENTS_PER_CHUNK, release
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

COUNT = 3 * ELEMENTS_PER_CHUNK


def partition(index: int) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=index, timestamp=-1)


def request_of(*counts: int) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(name=f"t{number}", partitions=[partition(index) for index in range(count)])
        for number, count in enumerate(counts)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def chunks(request: ListOffsetsRequest) -> int:
    return sum(1 for _ in release(request))


def test_each_chunk_frees_a_bounded_number_of_elements() -> None:
    request = request_of(COUNT)
    left = [len(request.topics[0].partitions) for _ in release(request)]
    assert left == [COUNT - ELEMENTS_PER_CHUNK, COUNT - 2 * ELEMENTS_PER_CHUNK]
    many = request_of(*[1] * COUNT)
    assert chunks(many) == 2
    assert len(many.topics) == ELEMENTS_PER_CHUNK


def test_what_others_refer_to_stays() -> None:
    request = request_of(COUNT, COUNT, COUNT)
    kept_topic = request.topics[0]
    kept_list = request.topics[1].partitions
    assert chunks(request) == 2
    assert len(kept_topic.partitions) == COUNT
    assert len(kept_list) == COUNT
    assert len(request.topics[2].partitions) <= ELEMENTS_PER_CHUNK
