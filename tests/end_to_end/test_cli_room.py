"""kwire room: the commands a person types, against a real server, beside a Kafka client that sees the same records."""

import io
import json
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kwire.cli import main
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.settings import HttpSettings
from tests.support.cli import interruptible
from tests.support.clients import unique_name
from tests.support.server import KwireProcess

JOIN_SECONDS = 60


def run(process: KwireProcess, verb: str, *arguments: str, input_text: str = "") -> tuple[int, str, str]:
    """Exit code and what was printed."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(input_text.encode())))
        code = main(["room", verb, *arguments, "--http", process.http_url])
    return code, out.getvalue(), errors.getvalue()


def room(process: KwireProcess, verb: str, *arguments: str) -> Any:
    code, out, errors = run(process, verb, *arguments, "--json")
    assert code == 0, out + errors
    return json.loads(out)


def events(process: KwireProcess, name: str) -> list[dict[str, Any]]:
    code, out, errors = run(process, "tail", name, "--from-offset", "0", "--until-caught-up")
    assert code == 0, errors
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.proves("S0-1", "S0-32")
def test_room_is_published_to_and_followed_and_kafka_clients_see_the_same(kwire: KwireProcess) -> None:
    name = unique_name("room")
    code, out, errors = run(kwire, "publish", name, '{"n": 1}', "--type", "join", "--metadata", "who=me")
    assert (code, out, errors) == (0, "published offset 0\n", "")
    code, out, errors = run(kwire, "publish", name, input_text='{"n": 2}\n\nplain words\n')
    assert (code, out, errors) == (0, "published offsets 1 to 2\n", "")
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    producer.send(name, b'{"n": 4}').get(JOIN_SECONDS)
    producer.close()
    told = events(kwire, name)
    assert [(one["offset"], one["type"], one["data"]) for one in told] == [
        (0, "join", {"n": 1}),
        (1, "message", {"n": 2}),
        (2, "message", "plain words"),
        (3, "message", {"n": 4}),
    ]
    assert told[0]["metadata"] == {"who": "me"}
    consumer = KafkaConsumer(bootstrap_servers=kwire.bootstrap, consumer_timeout_ms=JOIN_SECONDS * 1000)
    partition = TopicPartition(name, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = [next(consumer).value for _ in range(4)]
    consumer.close()
    assert values == [b'{"n":1}', b'{"n":2}', b'"plain words"', b'{"n": 4}']


def test_lines_of_a_room_come_as_it_is_published_to(kwire: KwireProcess) -> None:
    name = unique_name("room")
    room(kwire, "create", name)
    ready, told = threading.Event(), list[dict[str, Any]]()

    def follow() -> None:
        # Not through the program: what it prints would go where the other commands of this test print.
        client = HttpClient(HttpSettings(kwire.http_url))
        for message in client.lines(f"/rooms/{name}/subscribe"):
            if message.get("control") == "caught_up":
                ready.set()
            elif "control" not in message:
                told.append(message)
                break
        client.close()

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    assert ready.wait(JOIN_SECONDS)
    run(kwire, "publish", name, '"now"')
    following.join(JOIN_SECONDS)
    assert [one["data"] for one in told] == ["now"]
    code, out, _ = run(kwire, "tail", name, "--from-offset", "-1", "--count", "1")
    assert code == 0
    assert json.loads(out)["data"] == "now"


def program(process: KwireProcess, *arguments: str, **pipes: Any) -> "subprocess.Popen[str]":
    """The program as a shell starts it."""
    command = [sys.executable, "-m", "kwire", "room", *arguments, "--http", process.http_url]
    with interruptible():
        return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **pipes)


def test_lines_of_the_input_are_published_as_they_come(kwire: KwireProcess) -> None:
    name = unique_name("room")
    with program(kwire, "publish", name, stdin=subprocess.PIPE) as publishing:
        assert publishing.stdin is not None
        assert publishing.stdout is not None
        for number in range(2):
            publishing.stdin.write(f"{number}\n")
            publishing.stdin.flush()
            assert publishing.stdout.readline() == f"published offset {number}\n"
        publishing.stdin.write("no line break at the end")
        publishing.stdin.close()
        assert publishing.stdout.read() == "published offset 2\n"
        assert publishing.wait(JOIN_SECONDS) == 0
    assert [one["data"] for one in events(kwire, name)] == [0, 1, "no line break at the end"]


def test_tail_ends_with_ctrl_c_and_when_nobody_reads_what_it_prints(kwire: KwireProcess) -> None:
    name = unique_name("room")
    run(kwire, "publish", name, "1")
    with program(kwire, "tail", name, "--from-offset", "0") as tailing:
        assert tailing.stdout is not None
        assert json.loads(tailing.stdout.readline())["data"] == 1
        tailing.send_signal(signal.SIGINT)
        assert tailing.communicate(timeout=JOIN_SECONDS) == ("", "")
        assert tailing.returncode == 130
    with program(kwire, "tail", name, "--from-offset", "0") as tailing:
        assert tailing.stdout is not None
        assert tailing.stderr is not None
        tailing.stdout.readline()
        tailing.stdout.close()
        # No second event arrives.
        assert tailing.wait(JOIN_SECONDS) == 128 + signal.SIGPIPE
        assert tailing.stderr.read() == ""


def test_a_room_that_is_misspelled_is_not_created(kwire: KwireProcess) -> None:
    name = unique_name("two words")
    create = f"room {name} does not exist: create it with kwire room create '{name}'"
    assert run(kwire, "tail", name) == (1, "", f"kwire: {create}, or add --create\n")
    assert run(kwire, "history", name) == (1, "", f"kwire: {create}\n")
    assert run(kwire, "list", "--prefix", name, "--json")[1] == "[]\n"
    code, out, errors = run(kwire, "tail", name, "--create", "--until-caught-up")
    assert (code, out, errors) == (0, "", "")
    assert [one["room"] for one in room(kwire, "list", "--prefix", name)] == [name]


def test_history_and_tail_print_the_same_lines(kwire: KwireProcess) -> None:
    name = unique_name("room")
    run(kwire, "publish", name, '{"text": "é", "list": [1, 2]}', "--metadata", "who=me")
    run(kwire, "publish", name, "plain words")
    code, history, _ = run(kwire, "history", name)
    assert code == 0
    assert run(kwire, "tail", name, "--from-offset", "0", "--until-caught-up") == (0, history, "")
    assert '"data":{"text":"é","list":[1,2]},' in history.splitlines()[0]
    assert '"data":"plain words",' in history.splitlines()[1]


def test_tail_says_that_the_server_has_gone(start_kwire: Any) -> None:
    process = start_kwire()
    run(process, "publish", "lobby", "1")
    with program(process, "tail", "lobby", "--from-offset", "0") as tailing:
        assert tailing.stdout is not None
        tailing.stdout.readline()
        process.kill()
        _, errors = tailing.communicate(timeout=JOIN_SECONDS)
        assert tailing.returncode == 1
        assert errors.startswith("kwire: ")
        assert errors.count("\n") == 1


def test_rooms_are_created_changed_described_listed_and_deleted(kwire: KwireProcess) -> None:
    stem = unique_name("room")
    first, second = f"{stem} é/a", f"{stem} é/b"
    made = room(kwire, "create", first, "--retention-mode", "count", "--max-events", "5")
    assert (made["room"], made["retention"]["mode"], made["retention"]["max_events"]) == (first, "count", 5)
    room(kwire, "create", second)
    changed = room(kwire, "create", first, "--retention-hours", "2")
    assert (changed["retention"]["mode"], changed["retention"]["hours"]) == ("hybrid", 2)
    described = room(kwire, "describe", first)
    assert described["epoch"] == made["epoch"]
    assert (described["oldest_offset"], described["newest_offset"]) == (0, -1)
    listed = [row["room"] for row in room(kwire, "list")]
    assert {first, second} <= set(listed)
    assert [row["room"] for row in room(kwire, "list", "--prefix", first)] == [first]
    code, out, _ = run(kwire, "describe", first)
    assert code == 0
    assert f"room: {first}\n" in out
    code, out, errors = run(kwire, "delete", "--yes", first, "no such room", second)
    assert code == 1
    assert out == f"deleted {first}\ndeleted {second}\n"
    assert "RoomNotFound" in errors
    assert not {first, second} & {row["room"] for row in room(kwire, "list")}


def test_what_goes_wrong_is_one_clear_line(kwire: KwireProcess) -> None:
    for arguments, problem in (
        (("describe", "no such room"), "there is no room 'no such room' (RoomNotFound)"),
        (("create", "__reserved"), "__reserved"),
        (("create", unique_name("room"), "--max-events", "0"), "max_events"),
        (("publish", "__reserved", "1"), "__reserved"),
        (("publish", "room", "1", "--metadata", "no equals sign"), "KEY=VALUE"),
        (("tail", "__reserved"), "__reserved"),
    ):
        code, out, errors = run(kwire, *arguments)
        assert code == (2 if "--metadata" in arguments else 1), out
        assert problem in errors
        assert errors.count("\n") == 1
    errors_of_no_server = io.StringIO()
    with redirect_stderr(errors_of_no_server):
        assert main(["room", "list", "--http", "http://127.0.0.1:1"]) == 2
        assert main(["room", "list", "--http", "ftp://example"]) == 2
    assert "nothing listens on http://127.0.0.1:1;" in errors_of_no_server.getvalue()


@pytest.mark.proves("S0-41", "C-10")
def test_server_takes_its_rooms_from_a_yaml_file(start_kwire: Any, tmp_path: Path) -> None:
    block, more = tmp_path / "streams.yaml", tmp_path / "server.properties"
    block.write_text("stream:\n  retention_mode: count\n  max_events_per_room: 3\n  max_rooms: 1\n")
    more.write_text("kwire.rooms.max.events=2\n")
    process = start_kwire(arguments=["--config", str(block), "--config", str(more)])
    for number in range(5):
        run(process, "publish", "only", str(number))
    assert [one["data"] for one in events(process, "only")] == [3, 4]
    code, _, errors = run(process, "publish", "another", "1")
    assert code == 1
    assert "RoomNotFound" in errors
