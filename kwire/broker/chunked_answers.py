"""Large responses, built in chunks so that the event loop can run other work between them.

A response about a hundred thousand topics takes half a second to build. Other requests must not wait that long, so the
response is built in chunks of about a millisecond. A response that needs only one chunk is returned immediately.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from kwire.broker.partition import Partition
from kwire.concurrency.chunking import spread, yield_to_loop
from storage.errors import StorageError

A = TypeVar("A")
E = TypeVar("E")
P = TypeVar("P")

# The sum of the weights of the elements in a chunk. An element of weight 1 (a topic or a partition) takes about five
# microseconds to build and encode.
WEIGHT_PER_CHUNK = 250
# A topic with more partitions than this becomes several elements of the response, because the encoding of one element
# cannot be interrupted. Each of these elements repeats the topic's name.
PARTITIONS_PER_CHUNK = 2000

# Opening a log takes a third of a millisecond, more if it has many segments.
OPENS_PER_CHUNK = 10


async def open_in_chunks(partitions: Iterable[Partition | None]) -> None:
    """Open the logs of these partitions in chunks, so that later reads need not open them.

    Elements that are None are ignored.
    """
    opened = 0
    async for partition in spread(partitions):
        if partition is None or partition.is_open:
            continue
        with suppress(StorageError):  # the next read reports the error
            partition.open()
        opened += 1
        if opened % OPENS_PER_CHUNK == 0:
            await yield_to_loop()


def partition_chunks(partitions: Sequence[E]) -> Iterator[Sequence[E]]:
    """Yield the requested partitions of a topic in chunks of up to PARTITIONS_PER_CHUNK.

    If there are no partitions, yield one empty chunk.
    """
    for first in range(0, max(len(partitions), 1), PARTITIONS_PER_CHUNK):
        yield partitions[first : first + PARTITIONS_PER_CHUNK]


def answer_in_chunks(
    elements: Iterator[E | None],
    weigh: Callable[[E], int],
    make: Callable[[list[E]], A],
    encode: Callable[[list[E]], P],
    make_encoded: Callable[[int, list[P]], A],
) -> A | Awaitable[A]:
    """Build a response from `elements`: with `make` if one chunk is enough, else with `make_encoded`.

    A None among the elements is work without a result, such as a topic that the client may not see. Its weight is 1.

    `make_encoded` gets the number of elements and the encoded chunks. Each chunk after the first is taken from the
    iterator in a later loop iteration, so the state that the iterator reads may change between chunks.
    """
    first, is_last = _next_chunk(elements, weigh)
    return make(first) if is_last else _answer_rest(first, elements, weigh, encode, make_encoded)


async def _answer_rest(
    first: list[E],
    elements: Iterator[E | None],
    weigh: Callable[[E], int],
    encode: Callable[[list[E]], P],
    make_encoded: Callable[[int, list[P]], A],
) -> A:
    count, chunks = len(first), [encode(first)]
    is_last = False
    while not is_last:
        await yield_to_loop()
        some, is_last = _next_chunk(elements, weigh)
        count += len(some)
        chunks.append(encode(some))
    return make_encoded(count, chunks)


def _next_chunk(elements: Iterator[E | None], weigh: Callable[[E], int]) -> tuple[list[E], bool]:
    """Return the elements of the next chunk, and whether it is the last chunk."""
    taken: list[E] = []
    weight = 0
    for element in elements:
        if element is None:
            weight += 1
        else:
            taken.append(element)
            weight += weigh(element)
        if weight >= WEIGHT_PER_CHUNK:
            return taken, False
    return taken, True
