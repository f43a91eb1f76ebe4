"""kwire schema and kwire event: schemas are registered and checked, events are published, listed and followed."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Done, run_here
from tests.support.clients import unique_name
from tests.support.server import KwireProcess

PLACED = {
    "eventType": "placed",
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
}
PAID = {"eventType": "paid", "type": "object", "properties": {"by": {"type": "string"}}}


def run(kwire: KwireProcess, *arguments: object, given: str = "") -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        return run_here(*arguments, "--http", kwire.http_url)


def done(kwire: KwireProcess, *arguments: object, given: str = "") -> Any:
    found = run(kwire, *arguments, "-o", "json", given=given)
    assert (found.code, found.errors) == (0, ""), found
    return json.loads(found.out)


def lines(kwire: KwireProcess, *arguments: object) -> list[dict[str, Any]]:
    found = run(kwire, *arguments)
    assert (found.code, found.errors) == (0, ""), found
    return [json.loads(line) for line in found.out.splitlines()]


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    path = tmp_path / "schemas.json"
    path.write_text(json.dumps([PLACED]))
    return path


def test_schemas_are_registered_shown_checked_and_deleted(kwire: KwireProcess, schemas: Path) -> None:
    topic, missing = unique_name("orders"), unique_name("missing")
    assert done(kwire, "schema", "check", topic, "--file", schemas)["changed"] == ["placed"]
    created = done(kwire, "schema", "register", topic, "--file", schemas, "--config", "retention.ms=-1")
    assert created == {"created": topic, "types": ["placed"]}
    assert {"topic": topic, "type": "placed", "required": ["total"], "optional": [], "events": 0} in done(
        kwire, "schema", "list"
    )
    shown = run(kwire, "schema", "show", topic).out
    assert json.loads(shown) == {"name": topic, "schemas": [PLACED]}

    schemas.write_text(json.dumps(PAID))
    assert done(kwire, "schema", "check", topic, "--file", schemas)["changed"] == ["paid"]
    assert run(kwire, "schema", "register", topic, "--file", schemas, "--all").code == 1, "placed is missing"
    assert done(kwire, "schema", "register", topic, "--file", schemas)["types"] == ["placed", "paid"]
    assert done(kwire, "schema", "show", topic, "--type", "paid")["schemas"] == [PAID]
    assert "no event type shipped" in run(kwire, "schema", "show", topic, "--type", "shipped").errors

    schemas.write_text(json.dumps(PLACED | {"required": []}))
    local = run(kwire, "schema", "check", topic, "--file", schemas)
    server = run(kwire, "schema", "register", topic, "--file", schemas)
    assert (local.code, server.code) == (1, 1)
    assert run(kwire, "schema", "register", topic, "--file", schemas, "--config", "a=b").code == 2

    found = run(kwire, "schema", "show", missing, topic)
    assert found.code == 1
    assert missing in found.errors
    assert run(kwire, "schema", "delete", topic).code == 2, "nobody can answer"
    found = run(kwire, "schema", "delete", missing, topic, "--yes")
    assert (found.code, found.out) == (1, f"deleted {topic}\n")
    assert run(kwire, "schema", "list", topic).code == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "[1]", '{"schemas": {}}'])
def test_a_file_without_schemas_is_refused(kwire: KwireProcess, tmp_path: Path, text: str) -> None:
    path = tmp_path / "schemas.json"
    path.write_text(text)
    found = run(kwire, "schema", "register", unique_name("never"), "--file", path)
    assert found.code == 2
    assert str(path) in found.errors


def test_events_are_published_listed_and_followed(kwire: KwireProcess, schemas: Path) -> None:
    topic = unique_name("orders")
    schemas.write_text(json.dumps({"schemas": [PLACED, PAID]}))
    done(kwire, "schema", "register", topic, "--file", schemas)
    publish = ("event", "publish", "--type", "placed", topic)
    assert run(kwire, *publish, '{"total": 1.10}', "--metadata", "who=me", "--key", "k").out == f"published {topic}-1\n"
    assert done(kwire, *publish, given='{"total": 2}\n\n{"total": 3}\n')["eventIds"] == [f"{topic}-2", f"{topic}-3"]
    run(kwire, "event", "publish", topic, '{"by": "card"}', "--type", "paid", "--expected-version", "2")
    assert run(kwire, *publish, '{"total": 1}', "--expected-version", "0").code == 1
    assert run(kwire, *publish, '{"total": "much"}').code == 1
    found = run(kwire, *publish, given='{"total": 4}\nno json\n')
    assert found.code == 2
    assert "line 2 of the input is not JSON" in found.errors
    assert run(kwire, *publish, "--event-id", "x").code == 2

    listed = lines(kwire, "event", "list", topic)
    assert [one["id"] for one in listed] == [f"{topic}-{number}" for number in (1, 2, 3, 4)]
    assert (listed[0]["payload"], listed[0]["metadata"], listed[0]["key"]) == ({"total": 1.1}, {"who": "me"}, "k")
    assert [one["version"] for one in lines(kwire, "event", "list", topic, "--since", f"{topic}-2")] == [2, 3]
    assert [one["version"] for one in lines(kwire, "event", "list", topic, "--limit", "2", "--newest-first")] == [3, 2]
    assert [one["version"] for one in lines(kwire, "event", "list", topic, "--type", "paid", "--limit", "1")] == [3]
    missing = unique_name("missing")
    found = run(kwire, "event", "list", missing, topic)
    assert found.code == 1
    assert missing in found.errors
    assert len(found.out.splitlines()) == 4

    tail = ("event", "tail", topic, "--until-caught-up")
    assert [one["version"] for one in lines(kwire, *tail, "--from", "oldest")] == [0, 1, 2, 3]
    assert [one["version"] for one in lines(kwire, *tail, "--from", "-1")] == [3]
    assert [one["version"] for one in lines(kwire, *tail, "--from", "oldest", "--type", "paid")] == [3]
    assert [one["version"] for one in lines(kwire, *tail, "--from-time", "1h", "--count", "2")] == [0, 1]
    everything = lines(kwire, "event", "tail", "--until-caught-up", "--from-time", "1h")
    assert [one["id"] for one in everything if one["topic"] == topic] == [one["id"] for one in listed]
    assert run(kwire, "event", "tail", topic, "--from", "middle").code == 2


def test_the_history_of_a_room_is_printed(kwire: KwireProcess) -> None:
    room = unique_name("room")
    run(kwire, "room", "publish", room, given="".join(f"{number}\n" for number in range(5)))

    def history(*arguments: object) -> list[Any]:
        return [one["data"] for one in lines(kwire, "room", "history", room, *arguments)]

    assert history() == [0, 1, 2, 3, 4]
    assert history("--from-offset", "-2") == [3, 4]
    assert history("--from-offset", "1", "--to-offset", "3") == [1, 2, 3]
    assert history("--limit", "2") == [0, 1]
    tail = lines(kwire, "room", "tail", room, "--from-time", "1h", "--type", "message", "--count", "5")
    assert [one["offset"] for one in tail] == [0, 1, 2, 3, 4]
    assert run(kwire, "room", "history", unique_name("no-room")).code == 1
    assert run(kwire, "room", "tail", room, "--from-time", "soon").code == 2
