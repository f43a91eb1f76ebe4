"""Both kinds of key map say what a dictionary would."""

import random

import pytest

from storage.compaction.key_map import DICTIONARY_KEY_BYTES, DenseKeyMap, digest_name, keys_max, with_capacity


@pytest.mark.parametrize("count", [1, 2, 7, 100, 5000])
def test_a_dense_map_holds_what_it_was_made_for(count: int) -> None:
    rng = random.Random(count)
    names = [rng.randbytes(rng.choice([0, 1, 5, 47, 48])) for _ in range(count)]
    twin: dict[bytes, int] = {}
    dense = DenseKeyMap(count)
    for offset in range(3 * count):
        name = rng.choice(names)
        twin[name] = offset
        dense[name] = offset
    assert len(dense) == len(twin)
    assert {name: dense.get(name, -1) for name in names} == {name: twin.get(name, -1) for name in names}
    assert all(dense.get(b"unknown %d" % number, -1) == -1 for number in range(100))


def test_keys_move_to_less_memory_when_a_dictionary_takes_half_of_it() -> None:
    memory_bytes = 100 * DICTIONARY_KEY_BYTES
    few = with_capacity({}, 50, memory_bytes)
    assert isinstance(few, dict)
    for number in range(50):
        few[b"%d" % number] = number
    many = with_capacity(few, 1, memory_bytes)
    assert isinstance(many, DenseKeyMap)
    assert [many.get(b"%d" % number, -1) for number in range(51)] == [*range(50), -1]
    assert with_capacity(many, 1, memory_bytes) is many
    assert with_capacity(many, keys_max(memory_bytes), memory_bytes) is None
    assert with_capacity({}, 10 * keys_max(memory_bytes), memory_bytes) is not None, "one batch always fits"
    assert keys_max(memory_bytes) > 6 * 50


def test_a_full_map_stays_within_its_memory() -> None:
    memory_bytes = 1024 * 1024
    dense = DenseKeyMap(keys_max(memory_bytes))
    arrays = (dense._firsts, dense._seconds, dense._offsets)
    assert sum(len(one) * one.itemsize for one in arrays) <= memory_bytes // 2 + 1024
    for number in range(keys_max(memory_bytes)):
        dense[b"%d" % number] = number
    assert dense.get(b"0", -1) == 0
    assert dense.get(b"unknown", -1) == -1


def test_the_name_of_a_long_key_is_no_short_key() -> None:
    assert len(digest_name(b"x" * 48)) == 48
    assert digest_name(b"x" * 48) != digest_name(b"x" * 49)
