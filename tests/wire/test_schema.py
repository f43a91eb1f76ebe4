"""The language of declarations: version ranges, constructors, defaults, and what a declared object can do."""

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.wire import types
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState
from kwire.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kwire.wire.schema import LAST_VERSION, REQUIRED, Api, ArrayKind, Kind, Struct, Versions, message_of, struct_of
from tests.wire.cases import MESSAGES, Inner, Sample


def structs_in(kind: Kind) -> Iterator[Struct]:
    """A struct and the structs in it, however deep."""
    if isinstance(kind, ArrayKind):
        yield from structs_in(kind.element)
    elif isinstance(kind, Struct):
        yield kind
        for f in kind.fields:
            yield from structs_in(f.kind)


STRUCTS = list(dict.fromkeys(kind for cls in MESSAGES for kind in structs_in(struct_of(cls))))


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("0+", 0, LAST_VERSION), ("12+", 12, LAST_VERSION), ("4-18", 4, 18), ("3", 3, 3), ("0", 0, 0), ("none", 0, -1)],
)
def test_versions_are_parsed(text: str, first: int, last: int) -> None:
    assert Versions.parse(text) == Versions(first, last)


def test_versions_know_what_they_contain() -> None:
    versions = Versions.parse("4-6")
    assert [version for version in range(10) if version in versions] == [4, 5, 6]
    assert list(versions) == [4, 5, 6]
    assert list(Versions.parse("none")) == []
    assert 0 not in Versions.parse("none")


@pytest.mark.parametrize("text", ["4-18", "3"])
def test_versions_print_as_they_are_written(text: str) -> None:
    assert str(Versions.parse(text)) == text


@pytest.mark.parametrize("text", ["", "x", "-", "1-x"])
def test_text_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Versions.parse(text)


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="member_id"):
        HeartbeatRequest(group_id="g", generation_id=1)  # type: ignore[call-arg]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="rack"):
        HeartbeatResponse(error_code=0, rack="r")  # type: ignore[call-arg]


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        HeartbeatResponse(0)  # type: ignore[call-arg]


def test_defaults_fill_what_is_not_given() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert heartbeat.group_instance_id is None
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    assert (partition.current_leader_epoch, partition.replica_directory_id) == (-1, bytes(16))
    assert partition.high_watermark == 2**63 - 1


def test_a_list_default_is_new_for_every_object() -> None:
    first = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    second = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    first.forgotten_topics_data.append(None)  # type: ignore[arg-type]
    assert second.forgotten_topics_data == []


def test_a_struct_default_is_one_shared_object() -> None:
    first = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    second = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert first.replica_state is second.replica_state
    assert first.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)


def test_a_nullable_array_can_be_null_although_its_default_is_empty() -> None:
    assert OffsetFetchRequest(group_id="g").topics == []
    assert OffsetFetchRequest(group_id="g", topics=None).topics is None
    assert OffsetFetchRequestGroup(group_id="g", topics=None).topics is None


def test_objects_are_equal_when_type_and_every_field_are() -> None:
    def heartbeat(**changes: Any) -> HeartbeatRequest:
        return HeartbeatRequest(**{"group_id": "g", "generation_id": 1, "member_id": "m", **changes})

    assert heartbeat() == heartbeat()
    for changed in ({"group_id": "h"}, {"generation_id": 2}, {"member_id": "n"}, {"group_instance_id": "i"}):
        assert heartbeat() != heartbeat(**changed)
    others: list[object] = ["something else", ReplicaState(), None]
    assert heartbeat() not in others


def test_records_are_equal_as_bytes_or_as_a_view() -> None:
    def partition(records: types.Buffer) -> PartitionData:
        return PartitionData(
            partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=records
        )

    assert partition(b"abc") == partition(memoryview(b"abc")) == partition(bytearray(b"abc"))


def test_objects_that_change_have_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Inner())


def test_repr_is_the_call_that_makes_the_object() -> None:
    assert repr(Inner(text="t")) == "Inner(text='t', number=-1, hidden=0)"
    topic = MetadataRequestTopic(name="t")
    assert repr(MetadataRequest(topics=[topic])).startswith(f"MetadataRequest(topics=[{topic!r}], allow_auto_topic")


def test_objects_are_slotted() -> None:
    with pytest.raises(AttributeError):
        Inner().unknown = 1  # type: ignore[attr-defined]
    assert not hasattr(Inner(), "__dict__")


def test_a_declaration_keeps_its_name_module_and_docstring() -> None:
    assert (Sample.__name__, Sample.__module__) == ("Sample", "tests.wire.cases")
    assert "field of every kind" in (Sample.__doc__ or "")


def test_annotations_give_kind_and_nullability() -> None:
    fields = {f.name: f for f in struct_of(Sample).fields}
    assert fields["uint32"].kind is types.UINT32
    assert fields["inner"].kind is struct_of(Inner)
    assert fields["inners"].kind == ArrayKind(struct_of(Inner))
    assert fields["strings"].kind == ArrayKind(types.STRING)
    assert list(fields["string"].nullable) == []
    assert fields["nullable_string"].nullable == fields["nullable_string"].versions
    assert fields["string_nullable_later"].nullable == Versions.parse("1+")


def test_a_struct_lists_its_fields_by_version_and_its_tags_in_order() -> None:
    kind = struct_of(FetchPartition)
    assert [f.name for f in kind.at(4)] == ["partition", "fetch_offset", "partition_max_bytes"]
    assert [f.name for f in kind.tagged_at(16)] == []
    assert [(f.tag, f.name) for f in kind.tagged_at(18)] == [(0, "replica_directory_id"), (1, "high_watermark")]


def test_an_api_is_derived_from_its_messages() -> None:
    assert (HEARTBEAT.key, HEARTBEAT.name, HEARTBEAT.versions) == (12, "Heartbeat", Versions(0, 4))
    assert HEARTBEAT.first_flexible == 4
    assert repr(HEARTBEAT) == "Api(Heartbeat, key 12, versions 0-4)"
    with pytest.raises(AssertionError):
        Api(HeartbeatRequest, Sample)


def test_a_field_that_only_some_versions_carry_has_a_default() -> None:
    """So a handler can fill in an answer, or read a request, without a look at the version."""
    for cls in MESSAGES:
        message = message_of(cls)
        late = [f for f in message.struct.fields if any(version not in f.versions for version in message.versions)]
        assert [f.name for f in late if f.default is REQUIRED] == [], message.name


def test_tagged_fields_have_a_default_and_a_tag_of_their_own() -> None:
    for kind in STRUCTS:
        tagged = [f for f in kind.fields if f.tag is not None]
        assert [f.name for f in tagged if f.default is REQUIRED] == [], kind
        assert len({f.tag for f in tagged}) == len(tagged), kind


def test_a_default_is_a_value_that_the_field_can_hold() -> None:
    for kind in STRUCTS:
        for f in kind.fields:
            if f.default is None:
                assert f.nullable.first <= f.nullable.last, (kind, f)
            elif isinstance(f.kind, Struct):
                assert f.default is REQUIRED or isinstance(f.default, f.kind.make), (kind, f)
            elif isinstance(f.kind, ArrayKind):
                assert f.default in (REQUIRED, list), (kind, f)
            else:
                assert f.default is REQUIRED or type(f.default) is type(f.kind.zero), (kind, f)
