"""Distributes a number of partitions as evenly as possible over members that already have some (water filling).

The members with the fewest partitions get partitions until they have the same number, the common level. The remainder
is less than one partition per such member.
"""

from collections.abc import Sequence


def even_shares(bases: Sequence[int], held: Sequence[int], count: int) -> list[int]:
    """Return how many of `count` partitions each member gets.

    `bases` has the number of other partitions of each member. `held` has the number of the `count` partitions that each
    member has now. The remainder is given first to members that now hold more than their share at the common level, and
    then to the first members. So a balanced distribution does not change. In an unbalanced distribution, no member
    loses more partitions than necessary.
    """
    level, left_over = _level(sorted(bases), count)
    shares = [max(0, level - base) for base in bases]
    if left_over:
        at_level = [position for position, base in enumerate(bases) if base <= level]
        at_level.sort(key=lambda position: held[position] <= shares[position])
        for position in at_level[:left_over]:
            shares[position] += 1
    return shares


def _level(bases: Sequence[int], count: int) -> tuple[int, int]:
    """Return the common level after `count` partitions are added to the ascending `bases`, and the remainder."""
    level = bases[0]
    for width in range(1, len(bases)):
        step = (bases[width] - level) * width
        if step > count:
            return level + count // width, count % width
        count -= step
        level = bases[width]
    return level + count // len(bases), count % len(bases)
