"""A creation of rooms that fails in an unforeseen way: every caller gets an answer, and the next creation works."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.topics.topics import NewTopic, Topic
from tests.support.node import in_loop
from tests.support.rooms import RoomsNode

WAIT_SECONDS = 10.0


class Unforeseen(Exception):
    """Not one of the errors that the creation of a topic documents."""


@pytest.mark.parametrize("names", [["alone"], ["one", "two", "three"]])
@in_loop
async def test_callers_get_the_error_and_the_next_creation_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    with RoomsNode(tmp_path) as node:

        async def fail(new: Iterable[NewTopic], *_: Any) -> list[Topic]:
            raise Unforeseen("the disk is on fire")

        with monkeypatch.context() as patched:
            patched.setattr(node.topics, "create", fail)
            async with asyncio.timeout(WAIT_SECONDS):
                found = await asyncio.gather(*map(node.rooms.get_or_create, names), return_exceptions=True)
        assert [type(one) for one in found] == [Unforeseen] * len(names)
        async with asyncio.timeout(WAIT_SECONDS):
            rooms = await asyncio.gather(*map(node.rooms.get_or_create, names))
        assert [room.name for room in rooms] == names


@in_loop
async def test_callers_get_an_error_if_the_result_cannot_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RoomsNode(tmp_path) as node:
        create, get = node.topics.create, node.topics.get
        with monkeypatch.context() as patched:

            async def create_and_break(new: Iterable[NewTopic], *rest: Any) -> list[Topic]:
                made = await create(new, *rest)
                patched.setattr(node.topics, "get", broken)
                return made

            def broken(name: str) -> Topic | None:
                raise Unforeseen(name)

            patched.setattr(node.topics, "create", create_and_break)
            async with asyncio.timeout(WAIT_SECONDS):
                found = await asyncio.gather(node.rooms.get_or_create("r"), return_exceptions=True)
            assert isinstance(found[0], Unforeseen)
        assert node.topics.get == get
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await node.rooms.get_or_create("r")).name == "r"
