"""Events as files of a real server: kept in step while it runs, exported and imported on demand, packed and checked."""

import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from kwire.cli import main
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.settings import HttpSettings
from kwire.cli.event import transfer as event_transfer
from kwire.cli.event.transfer import opened_export
from kwire.streams.event_store.files.writer import write_round
from storage.disk.files import Files
from tests.support.clients import unique_name
from tests.support.event_files import found_events
from tests.support.server import KwireProcess, wait_until

HTTP_TIMEOUT_S = 20.0
SCHEMA = {
    "eventType": "user.created",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": "number"}},
    "required": ["id"],
}


@pytest.fixture
def client(kwire: KwireProcess) -> Iterator[HttpClient]:
    made = HttpClient(HttpSettings(kwire.http_url))
    yield made
    made.close()


@pytest.fixture
def topic(client: HttpClient) -> str:
    return new_topic(client)


def new_topic(client: HttpClient) -> str:
    name = unique_name("events")
    client.request("POST", "/topics", {"name": name, "schemas": [SCHEMA]})
    return name


def publish(client: HttpClient, name: str, first: int, count: int) -> None:
    events = [
        {
            "topic": name,
            "type": "user.created",
            "payload": {"id": str(n), "n": n},
            "metadata": {"who": "me"},
            "key": "k",
        }
        for n in range(first, first + count)
    ]
    assert len(client.request("POST", "/events", events)["eventIds"]) == count


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code and what was printed."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main(["event", *arguments])
    return code, out.getvalue(), errors.getvalue()


def contents(directory: Path, name: str) -> list[tuple[int, str, Any]]:
    return [(one.sequence, one.type, json.loads(one.payload)) for one in found_events(Files(), str(directory), name)]


@pytest.mark.proves("S2-7", "S2-8", "S2-9", "S2-10", "S2-11", "S2-13")
def test_an_export_has_a_file_for_each_event_and_goes_on_where_it_ended(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, 1, 1001)
    export = ("export", "--http", kwire.http_url, "--to", str(tmp_path / "out"), topic)
    code, out, errors = run(*export)
    assert (code, errors) == (0, "")
    assert out == f"{topic}: 1,001 events exported, 1,001 in all\n"
    assert contents(tmp_path / "out", topic) == [(n, "user.created", {"id": str(n), "n": n}) for n in range(1, 1002)]
    (last,) = (tmp_path / "out" / "data" / topic).glob("*/0001/*.json")
    told = json.loads(last.read_text())
    assert told == {
        "id": f"{topic}-1001",
        "timestamp": told["timestamp"],
        "type": "user.created",
        "payload": {"id": "1001", "n": 1001},
        "metadata": {"who": "me"},
        "key": "k",
    }
    config = json.loads((tmp_path / "out" / "config" / f"{topic}.json").read_text())
    assert config == {"name": topic, "sequence": 1001, "schemas": [SCHEMA]}
    publish(client, topic, 1002, 3)
    code, out, _ = run(*export, "--json")
    assert json.loads(out) == {"exported": topic, "events": 3, "total": 1004}
    assert len(contents(tmp_path / "out", topic)) == 1004


def test_an_export_that_was_interrupted_goes_on(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, topic, 1, 50)
    monkeypatch.setattr(event_transfer, "PAGE_EVENTS", 7)
    monkeypatch.setattr(event_transfer, "ROUND_EVENTS", 7)
    written = 0

    def fail_sometimes(*args: Any) -> None:
        nonlocal written
        written += 1
        if written % 3 == 0:
            raise OSError(28, "No space left on device")
        write_round(*args)

    monkeypatch.setattr(event_transfer, "write_round", fail_sometimes)
    export = ("export", "--http", kwire.http_url, "--to", str(tmp_path / "out"), topic)
    codes = [run(*export)[0] for _ in range(8)]
    assert codes == [1] * 7 + [0]
    assert len(contents(tmp_path / "out", topic)) == 50


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_leaves_an_export_and_an_import_that_go_on(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    publish(client, topic, 1, 30)
    monkeypatch.setattr(event_transfer, "PAGE_EVENTS", 10)
    monkeypatch.setattr(event_transfer, "ROUND_EVENTS", 10)
    monkeypatch.setattr(event_transfer, "BATCH_EVENTS", 10)
    there = ("--http", kwire.http_url)

    def interrupted_once(name: str) -> None:
        real, calls = getattr(event_transfer, name), 0

        def interrupted(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls != 2:
                return real(*args)
            if moment == "after":
                real(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(event_transfer, name, interrupted)

    interrupted_once("write_round")
    assert run("export", *there, "--to", str(tmp_path), topic) == (130, "", "kwire: interrupted\n")
    assert run("export", *there, "--to", str(tmp_path), "--verify", topic)[0] == 0
    before = contents(tmp_path, topic)
    assert len(before) == 30
    client.request("DELETE", f"/topics/{topic}")
    interrupted_once("_publish")
    assert run("import", *there, "--from", str(tmp_path), topic) == (130, "", "kwire: interrupted\n")
    assert run("import", *there, "--from", str(tmp_path), topic)[0] == 0
    assert run("export", *there, "--to", str(tmp_path / "again"), topic)[0] == 0
    assert contents(tmp_path / "again", topic) == before


def test_one_export_at_a_time_writes_to_a_directory(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path
) -> None:
    with opened_export(Files(), str(tmp_path)):
        code, _, errors = run("export", "--http", kwire.http_url, "--to", str(tmp_path), topic)
    assert code == 2
    assert "another process writes to the directory" in errors


def test_an_export_whose_last_event_was_packed_goes_on(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, 1, 1000)
    export = ("export", "--http", kwire.http_url, "--to", str(tmp_path), topic)
    assert run(*export)[0] == 0
    assert run("pack", "--dir", str(tmp_path), "--before", "2999-01-01")[0] == 0
    publish(client, topic, 1001, 2)
    assert run(*export)[0] == 0
    assert len(contents(tmp_path, topic)) == 1002


@pytest.mark.proves("S2-40")
def test_what_was_exported_can_be_imported_with_the_same_ids(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, topic, 1, 1203)
    there = ("--http", kwire.http_url)
    assert run("export", *there, "--to", str(tmp_path / "out"), topic)[0] == 0
    before = contents(tmp_path / "out", topic)
    code, out, errors = run("import", *there, "--from", str(tmp_path / "out"))
    assert (code, out, errors) == (0, f"{topic}: 0 events imported, 1,203 in all\n", "")
    client.request("DELETE", f"/topics/{topic}")
    # Interrupted once, it goes on.
    publish_batch, calls = event_transfer._publish, 0

    def fail_once(*args: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the connection is gone")
        return publish_batch(*args)

    monkeypatch.setattr(event_transfer, "_publish", fail_once)
    assert run("import", *there, "--from", str(tmp_path / "out"), topic)[0] == 1
    code, out, errors = run("import", *there, "--from", str(tmp_path / "out"), topic)
    assert (code, out, errors) == (0, f"{topic}: 703 events imported, 1,203 in all\n", "")
    assert run("export", *there, "--to", str(tmp_path / "again"), topic)[0] == 0
    assert contents(tmp_path / "again", topic) == before
    first = json.loads(urllib.request.urlopen(f"{kwire.http_url}/events/{topic}-1").read())
    (file,) = (tmp_path / "out" / "data" / topic).glob(f"*/0000/{topic}-1.json")
    assert first["metadata"] == {"who": "me", "original_timestamp": json.loads(file.read_text())["timestamp"]}
    assert first["key"] == "k"
    # The old export is of another topic, though it has the same name and as many events.
    code, _, errors = run("export", *there, "--to", str(tmp_path / "out"), topic)
    assert code == 1
    assert "the server's event differs from the exported one" in errors
    # That there are more by now changes nothing.
    publish(client, topic, 9, 1)
    code, out, errors = run("import", *there, "--from", str(tmp_path / "out"), topic)
    assert (code, out, errors) == (0, f"{topic}: 0 events imported, 1,204 in all\n", "")


def test_files_with_a_gap_are_imported_only_if_they_may_get_other_ids(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, 1, 5)
    there = ("--http", kwire.http_url)
    assert run("export", *there, "--to", str(tmp_path), topic)[0] == 0
    client.request("DELETE", f"/topics/{topic}")
    next((tmp_path / "data" / topic).glob("*/0000/*-2.json")).unlink()
    code, _, errors = run("verify", "--dir", str(tmp_path))
    assert code == 1
    assert f"data/{topic}: events 2 to 2 are missing" in errors
    code, _, errors = run("import", *there, "--from", str(tmp_path), topic)
    assert code == 1
    assert "--renumber" in errors
    code, out, _ = run("import", *there, "--from", str(tmp_path), topic, "--renumber")
    assert (code, out) == (0, f"{topic}: 4 events imported, 4 in all\n")


@pytest.mark.proves("S2-45")
def test_packed_files_are_checked_and_imported_as_well(
    kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, 1, 1100)
    there = ("--http", kwire.http_url)
    assert run("export", *there, "--to", str(tmp_path), topic)[0] == 0
    before = contents(tmp_path, topic)
    assert run("pack", "--dir", str(tmp_path), "--before", "soon")[0] == 2
    code, out, _ = run("pack", "--dir", str(tmp_path), "--before", "2999-01-01", "--json")
    told = json.loads(out)
    assert (code, told["packed"], told["groups"], told["files"]) == (0, topic, 1, 1000)
    code, out, _ = run("verify", "--dir", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(out) == [{"topic": topic, "events": 1100, "first": 1, "last": 1100, "problems": 0}]
    client.request("DELETE", f"/topics/{topic}")
    assert run("import", *there, "--from", str(tmp_path))[0] == 0
    assert contents(tmp_path, topic) == before


def test_what_cannot_be_done_is_said(kwire: KwireProcess, client: HttpClient, topic: str, tmp_path: Path) -> None:
    there = ("--http", kwire.http_url)
    for arguments, sentence, expected in (
        (("export", *there, "--to", str(tmp_path), "nowhere"), "there is no topic 'nowhere'", 1),
        (("export", *there, "--to", str(tmp_path), "../up"), "Topic name is invalid", 1),
        (("export", "--http", "http://127.0.0.1:1", "--to", str(tmp_path), topic), "nothing listens on", 2),
        (("import", *there, "--from", str(tmp_path / "nothing")), "contains no events", 2),
        (("import", *there, "--from", str(tmp_path), "nowhere"), "config/nowhere.json is missing", 1),
        (("verify", "--dir", str(tmp_path / "nothing")), "contains no events", 2),
    ):
        code, _, errors = run(*arguments)
        assert code == expected, arguments
        assert sentence in errors, arguments


def metrics(process: KwireProcess) -> list[str]:
    with urllib.request.urlopen(f"{process.http_url}/metrics", timeout=HTTP_TIMEOUT_S) as answer:
        text: str = answer.read().decode()
    return text.splitlines()


@pytest.mark.proves("S2-13", "S2-46", "C-23")
def test_a_server_keeps_its_files_in_step_through_restarts_and_deletions(
    start_kwire: Callable[..., KwireProcess], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start_kwire(settings={"kwire.events.files.dir": str(out)})
    client = HttpClient(HttpSettings(process.http_url))
    name = new_topic(client)
    publish(client, name, 1, 30)
    wait_until(lambda: len(contents(out, name)) == 30, "30 files")
    expected = {
        "kwire_event_files_behind_events 0.0",
        "kwire_event_files_written_total 30.0",
        "kwire_event_files_behind_seconds 0.0",
        "kwire_event_files_failures_total 0.0",
        "kwire_event_files_skipped_total 0.0",
        "kwire_event_files_refused_topics 0.0",
    }

    def are_expected() -> bool:
        lines = set(metrics(process))
        if "kwire_event_files_behind_events 0.0" in lines:
            assert "kwire_event_files_behind_seconds 0.0" in lines
        return lines >= expected

    wait_until(are_expected, f"the metrics are {sorted(expected)}")
    grown = {**SCHEMA, "properties": {**SCHEMA["properties"], "more": {"type": "string"}}}  # type: ignore[dict-item]
    client.request("PUT", f"/topics/{name}/schemas", {"schemas": [grown]})

    def config() -> Any:
        path = out / "config" / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    wait_until(lambda: config() == {"name": name, "sequence": 30, "schemas": [grown]}, "the new schema")
    publish(client, name, 31, 30)
    client.close()
    process.kill()
    (out / "config" / f"{name}.json").write_text("{}")
    process.restart()
    wait_until(lambda: len(contents(out, name)) == 60, "60 files")
    wait_until(lambda: config().get("sequence") == 60, "the counter")
    client = HttpClient(HttpSettings(process.http_url))
    publish(client, name, 61, 5)
    client.close()
    assert process.stop() == 0
    assert len(contents(out, name)) == 65
    # It is this server's, and no place for an export.
    process.restart()
    code, _, errors = run("export", "--http", process.http_url, "--to", str(out), name)
    assert code == 2
    assert "belongs to another server" in errors
    client = HttpClient(HttpSettings(process.http_url))
    client.request("DELETE", f"/topics/{name}")
    wait_until(lambda: not any((out / "data").iterdir()), "the files are gone")
    assert not any((out / "config").iterdir())
    client.close()
    assert process.stop() == 0
    other = KwireProcess(tmp_path / "other", settings={"kwire.events.files.dir": str(out)})
    other.start()
    assert other.exit_code() != 0
    assert "belongs to another server" in other.output_tail()
