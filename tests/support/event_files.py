"""The files of events for tests: a sink that does its work at once, and what is in its directory."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kwire.streams.event_store.files.layout import FileEvent, event_path
from kwire.streams.event_store.files.reader import Problem, events_in
from kwire.streams.event_store.files.sink import EventFiles
from storage.disk.files import Files
from tests.support.batches import UnsyncedFiles
from tests.support.event_store import events_of
from tests.support.node import QuietNode

OWNER = "this server"


async def run_here(function: Callable[..., Any], *args: Any) -> Any:
    """In the place of a worker process."""
    return function(*args)


def no_schemas(topic_id: bytes) -> Sequence[Any]:
    return ()


def sink_of(node: QuietNode, directory: Path, **more: Any) -> EventFiles:
    """Not opened yet."""
    given: dict[str, Any] = {
        "owner": OWNER,
        "topics": node.topics,
        "schemas_of": no_schemas,
        "files": UnsyncedFiles(),
        "run": run_here,
        **more,
    }
    return EventFiles(str(directory), **given)


def found_events(files: Files, root: str, topic: str) -> list[FileEvent]:
    """All that the files of a topic hold; nothing may be wrong with them."""
    found = []
    for one in events_in(files, root, topic):
        assert not isinstance(one, Problem), one
        found.append(one)
    return found


def check_files(node: QuietNode, directory: Path, *names: str) -> None:
    """Each event has its file, in its place, with its content, and there is no other."""
    for name in names:
        topic = node.topics.get(name)
        assert topic is not None
        found = found_events(Files(), str(directory), name)
        assert [(one.sequence, one.type, one.payload) for one in found] == [
            (event.offset + 1, event.type, event.data) for event in events_of(topic)
        ]
        paths = {str(path.relative_to(directory)) for path in (directory / "data" / name).rglob("*.json")}
        assert paths == {event_path(name, one) for one in found}
        assert not list((directory / "data" / name).rglob("*.new"))
        assert json.loads((directory / "config" / f"{name}.json").read_text())["sequence"] == len(found)
    assert {path.name for path in (directory / "data").iterdir() if list(path.rglob("*.json"))} <= set(names)
    assert {path.stem for path in (directory / "config").glob("*.json")} == set(names)
