"""Quorums: how many replicas acknowledge an entry, and how many a recovery must hear."""

from typing import Self

from msgspec import Struct


class Quorum(Struct, frozen=True):
    """A flexible quorum: of `replicas` copies (N), `writes` (W) are needed to acknowledge an entry.

    A recovery needs answers from R = N - W + 1 replicas. Any R replicas share at least one with any W replicas, so that
    a recovery sees every acknowledged entry. W does not have to be a majority, because epochs are assigned by the
    master.
    """

    replicas: int
    writes: int

    def __post_init__(self) -> None:
        if not 1 <= self.writes <= self.replicas:
            raise ValueError(f"a write quorum must be from 1 to {self.replicas} replicas, got {self.writes}")

    @property
    def reads(self) -> int:
        return self.replicas - self.writes + 1

    @classmethod
    def majority(cls, replicas: int) -> Self:
        return cls(replicas, replicas // 2 + 1)

    @classmethod
    def nrw(cls, replicas: int, reads: int, writes: int) -> Self:
        """N, R and W as three numbers. R must be large enough to meet every W: a larger R has no advantage."""
        if reads + writes <= replicas:
            raise ValueError(f"R + W must be larger than N, got N={replicas} R={reads} W={writes}")
        return cls(replicas, writes)
