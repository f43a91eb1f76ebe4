"""The catalogue: topics are found by name, id and collision key from the moment at which they are durable."""

import pytest

from kwire.broker.topics.catalogue import Catalogue, entry_value
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change
from tests.support.node import QuietNode, in_loop

ID = b"\x07" * 16


def catalogue_of(node: QuietNode) -> Catalogue:
    return Catalogue(node.metastore, lambda name, configs: None)


@in_loop
async def test_topic_is_found_once_it_is_entered(node: QuietNode) -> None:
    catalogue = catalogue_of(node)
    await catalogue.add({"a.b": entry_value(ID, 3, {"retention.ms": "5"})})
    facts = catalogue.find("a.b")
    assert facts is not None
    assert facts.topic_id == ID
    assert facts.partition_count == catalogue.partition_count == 3
    assert facts.configs == {"retention.ms": "5"}
    assert not facts.is_internal
    assert catalogue.name_of(ID) == "a.b"
    assert catalogue.names() == ["a.b"]
    assert list(catalogue.facts()) == [facts]
    assert list(catalogue.partition_counts()) == [("a.b", 3)]
    # A second one over the same store sees the same.
    assert list(catalogue_of(node).facts()) == [facts]


@in_loop
async def test_topic_that_only_the_store_knows_is_not_there_yet(node: QuietNode) -> None:
    """Between the commit and the entry others run: to them it is either there in every way or in none."""
    catalogue = catalogue_of(node)
    await node.metastore.commit([Change("topics/t", entry_value(ID, 1, {}), 0)])
    assert catalogue.find("t") is None
    assert catalogue.name_of(ID) is None
    assert len(catalogue) == 0


@pytest.mark.parametrize(
    ("taken", "asked"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b", "a.b"), ("a_b", "a_b"), ("a.b_c", "a_b.c")]
)
@in_loop
async def test_twin_is_whoever_looks_the_same(node: QuietNode, taken: str, asked: str) -> None:
    catalogue = catalogue_of(node)
    assert catalogue.find_colliding(asked) is None
    await catalogue.add({taken: entry_value(ID, 1, {})})
    assert catalogue.find_colliding(asked) == taken
    facts = catalogue.find(taken)
    assert facts is not None
    await catalogue.remove([facts])
    assert catalogue.find_colliding(asked) is None
    assert (len(catalogue), catalogue.partition_count) == (0, 0)


@in_loop
async def test_partitions_are_counted_through_every_change(node: QuietNode) -> None:
    catalogue = catalogue_of(node)
    await catalogue.add({"t": entry_value(ID, 1, {}), "u": entry_value(b"\x08" * 16, 5, {})})
    facts = catalogue.find("t")
    assert facts is not None
    wider = await catalogue.change(facts, entry_value(ID, 4, {}))
    assert wider == catalogue.find("t")
    assert dict(catalogue.partition_counts()) == {"t": 4, "u": 5}
    assert catalogue.partition_count == catalogue_of(node).partition_count == 9
    # What was thought out from an older state is refused.
    with pytest.raises(KafkaError) as caught:
        await catalogue.remove([facts])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    await catalogue.remove([wider])
    assert dict(catalogue.partition_counts()) == {"u": 5}
    assert catalogue.partition_count == 5


@in_loop
async def test_topics_that_go_while_they_are_listed_are_left_out(node: QuietNode) -> None:
    catalogue = catalogue_of(node)
    await catalogue.add({name: entry_value(name.encode() * 16, 1, {}) for name in "abc"})
    listing = catalogue.facts()
    assert next(listing).name == "a"
    gone = catalogue.find("b")
    assert gone is not None
    await catalogue.remove([gone])
    await catalogue.add({"d": entry_value(ID, 1, {})})
    assert [facts.name for facts in listing] == ["c"]


@in_loop
async def test_names_are_given_in_their_order_through_every_change(node: QuietNode) -> None:
    catalogue = catalogue_of(node)
    await catalogue.add({name: entry_value(name.encode() * 16, 1, {}) for name in "eac"})
    assert catalogue.names_from("", 10) == ["a", "c", "e"]
    await catalogue.add({name: entry_value(name.encode() * 16, 1, {}) for name in "db"})
    gone = catalogue.find("c")
    assert gone is not None
    await catalogue.remove([gone])
    await catalogue.add({"f": entry_value(ID, 1, {})})
    soon_gone = catalogue.find("f")
    assert soon_gone is not None
    await catalogue.remove([soon_gone])
    assert catalogue.names_from("", 10) == ["a", "b", "d", "e"] == catalogue_of(node).names_from("", 10)
    assert catalogue.names_from("b", 2) == ["b", "d"]
    assert catalogue.names_from("bb", 2) == ["d", "e"]
    assert catalogue.names_from("f", 2) == []
