"""Long work on the loop, in portions: others get their turn between two of them.

An answer about a hundred thousand topics takes half a second to make. Others must not wait for it, so it is made in
portions of a few milliseconds; what is one portion is given at once.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from kwire.broker.chunking import next_turn, spread
from kwire.broker.partition import Partition
from storage.errors import StorageError

A = TypeVar("A")
E = TypeVar("E")
P = TypeVar("P")

# A thing of weight 1 (a topic, a partition, a setting) takes some five microseconds to make and to encode.
WEIGHT_PER_TURN = 250
# More partitions of one topic than this are told in portions, each under its name: an element cannot be interrupted.
PARTITIONS_PER_PORTION = 2000

# To open a log takes a third of a millisecond, more when it has many segments.
OPENS_PER_TURN = 10


async def open_in_turns(partitions: Iterable[Partition | None]) -> None:
    """Open the logs of some partitions, so that a later look at them holds nobody up; None is passed over."""
    opened = 0
    async for partition in spread(partitions):
        if partition is None or partition.is_open:
            continue
        with suppress(StorageError):  # reported by the read that meets it again
            partition.open()
        opened += 1
        if opened % OPENS_PER_TURN == 0:
            await next_turn()


def portions(partitions: Sequence[E]) -> Iterator[Sequence[E]]:
    """What is asked of one topic's partitions, so much at a time as one element may have. No partitions are one too."""
    for first in range(0, max(len(partitions), 1), PARTITIONS_PER_PORTION):
        yield partitions[first : first + PARTITIONS_PER_PORTION]


def answer_in_turns(
    elements: Iterator[E],
    weigh: Callable[[E], int],
    make: Callable[[list[E]], A],
    encode: Callable[[list[E]], P],
    make_encoded: Callable[[int, list[P]], A],
) -> A | Awaitable[A]:
    """`make` of all elements at once if they are few; else `make_encoded` of their count and their encoded portions.

    They are taken from the iterator turn by turn, so what it looks up may change meanwhile.
    """
    first, is_last = _turn(elements, weigh)
    return make(first) if is_last else _finish(first, elements, weigh, encode, make_encoded)


async def _finish(
    first: list[E],
    elements: Iterator[E],
    weigh: Callable[[E], int],
    encode: Callable[[list[E]], P],
    make_encoded: Callable[[int, list[P]], A],
) -> A:
    count, portions = len(first), [encode(first)]
    is_last = False
    while not is_last:
        await next_turn()
        some, is_last = _turn(elements, weigh)
        count += len(some)
        portions.append(encode(some))
    return make_encoded(count, portions)


def _turn(elements: Iterator[E], weigh: Callable[[E], int]) -> tuple[list[E], bool]:
    """Elements for one turn, and whether these were the last."""
    taken: list[E] = []
    weight = 0
    for element in elements:
        taken.append(element)
        weight += weigh(element)
        if weight >= WEIGHT_PER_TURN:
            return taken, False
    return taken, True
