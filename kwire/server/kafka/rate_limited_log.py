"""Warnings about what clients do wrong, so many a second: a hostile client must not fill the disk with them."""

import logging

PER_ROUND_MAX = 10


class Complaints:
    """`add` logs until a round is full; `end_round`, called once a second, says how many were left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._count = 0

    def add(self, message: str, *details: object) -> None:
        self._count += 1
        if self._count <= PER_ROUND_MAX:
            self._log.warning(message, *details)

    def end_round(self) -> None:
        if self._count > PER_ROUND_MAX:
            self._log.warning("%d more warnings like these within a second", self._count - PER_ROUND_MAX)
        self._count = 0
