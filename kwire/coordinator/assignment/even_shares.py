"""Sharing out a number of equal things as evenly as can be among those who already have something: pouring water.

The lowest are raised to one common level; what is left over when all of them stand level is less than one for each.
"""

from collections.abc import Sequence


def even_shares(bases: Sequence[int], held: Sequence[int], count: int) -> list[int]:
    """How many of `count` things each of those gets who have `bases` of other things.

    The things left over go first to those who hold one more already, then to the first in line. So a sharing that is as
    even as can be stays as it is, and an uneven one takes from nobody more than it must.
    """
    level, left_over = _level(sorted(bases), count)
    shares = [max(0, level - base) for base in bases]
    if left_over:
        at_level = [place for place, base in enumerate(bases) if base <= level]
        at_level.sort(key=lambda place: held[place] <= shares[place])
        for place in at_level[:left_over]:
            shares[place] += 1
    return shares


def _level(bases: Sequence[int], count: int) -> tuple[int, int]:
    """Where `count` poured over ascending `bases` stands, and what is left above that level."""
    level = bases[0]
    for width in range(1, len(bases)):
        step = (bases[width] - level) * width
        if step > count:
            return level + count // width, count % width
        count -= step
        level = bases[width]
    return level + count // len(bases), count % len(bases)
