"""The example programs run, and do what they say."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.client import Client
from tests.support.cli import interruptible, run_here
from tests.support.server import KwireProcess, kwire_command

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    process = KwireProcess(tmp_path_factory.mktemp("examples"))
    process.start()
    process.ready()
    yield process
    process.kill()


def run(server: KwireProcess, program: str, *arguments: str, lines: str = "") -> str:
    answer = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *arguments, "--url", server.http_url],
        input=lines,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.proves("S0-97")
def test_two_members_chat_in_terminals(server: KwireProcess) -> None:
    run(server, "chat/chat.py", "alice", lines="Hello everyone!\nAnybody here?\n")
    with Client(server.http_url, timeout_s=WAIT_S) as client:
        said = [event.data["text"] for event in client.stream.history("chat-room-1").events]
        assert said == ["Hello everyone!", "Anybody here?"]
    bob = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "chat/chat.py"), "bob", "--url", server.http_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bob.stdin is not None
    assert bob.stdout is not None
    with bob:
        shown = [bob.stdout.readline() for _ in range(3)]
        assert shown == ["alice: Hello everyone!\n", "alice: Anybody here?\n", "-- live in chat-room-1\n"]
        bob.stdin.write("Me!\n")
        bob.stdin.flush()
        assert bob.stdout.readline() == "bob: Me!\n"
        bob.stdin.close()
        assert bob.wait(WAIT_S) == 0


@pytest.mark.parametrize("program", ["with_asyncio", "without_asyncio"])
def test_first_steps_are_the_same_in_both_styles(server: KwireProcess, program: str) -> None:
    said = run(server, f"first_steps/{program}.py", "--name", program).splitlines()
    assert said[:3] == ["0 alice: Hello!", "1 bob: Hello, Alice!", "2 carol: Am I late?"]
    assert said[3] == "not paid twice: the last version is 1"
    assert said[4:6] == ["0 order.placed: {'total': 12.5}", "1 order.paid: {'total': 12.5}"]
    assert re.fullmatch(r"another process continues with resume=Position\(epoch='.+', next_offset=2\)", said[6])


def test_a_late_player_has_the_board_of_everybody(server: KwireProcess) -> None:
    run(server, "game_lobby/lobby.py", "player-1", "--moves", "4")
    board = run(server, "game_lobby/lobby.py", "player-2", "--moves", "2")
    hits = [int(part.split()[1]) for part in board.strip().partition("hits: ")[2].split(", ")]
    assert sum(hits) == 6
    # The first has left; the second sees itself.
    assert board.startswith("players: player-2;")


def test_a_watcher_sees_what_machines_report(server: KwireProcess) -> None:
    watcher = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "monitoring/watch.py"), "--count", "2", "--url", server.http_url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    with watcher:
        assert watcher.stdout.readline() == "watching system-events\n"
        reports = run_here("example", "monitoring", "--count", "2", "--every", "0.1", "--http", server.http_url)
        assert reports.code == 0, reports.errors
        assert all("'cpu'" in line for line in (watcher.stdout.readline(), watcher.stdout.readline()))
        assert watcher.wait(WAIT_S) == 0


def test_an_example_without_a_server_has_a_temporary_one() -> None:
    command = [str(kwire_command()), "example", "chat", "--temporary"]
    with interruptible(), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as example:
        assert example.stdout is not None
        word, address = example.stdout.readline().split()
        assert word == "open"
        with urllib.request.urlopen(address, timeout=WAIT_S) as page:
            assert b"examples/main.js" in page.read()
        directories = [path for path in _temporary_directories(example.pid) if path.is_dir()]
        assert len(directories) == 1
        example.send_signal(signal.SIGTERM)
        assert example.wait(WAIT_S) == 0
    assert not directories[0].exists()


def _temporary_directories(pid: int) -> list[Path]:
    """The data directories of the servers that a process has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    words = [Path(f"/proc/{child}/cmdline").read_text().split("\0") for child in children]
    return [Path(line[line.index("--data-dir") + 1]).parent for line in words]


@pytest.mark.proves("S0-97")
def test_a_broadcast_reaches_quick_and_slow_readers(server: KwireProcess) -> None:
    said = run(server, "broadcast/broadcast.py", "--readers", "10", "--events", "200")
    assert "2000 deliveries" in said
    assert "nothing missed, nothing twice" in said


@pytest.mark.proves("S0-90", "S0-97")
def test_a_page_says_what_is_different_in_rooms_topics_queues_and_plain_publish_subscribe() -> None:
    docs = EXAMPLES.parent
    page = (docs / "choosing.md").read_text()
    for chapter in (
        "Rooms, topics and the event store",
        "A log beside a queue",
        "A log beside plain publish/subscribe",
    ):
        assert f"\n## {chapter}\n" in page
    for compared in ("who gets an event", "position", "key", "what is kept"):
        (row,) = re.findall(rf"^\| {compared} \|(.+)\|(.+)\|$", page.partition("\n## A log beside")[0], re.MULTILINE)
        assert row[0] != row[1]
    links = re.findall(r"\]\(([^)#:]+)\)", page)
    assert links
    assert [link for link in links if not (docs / link).exists()] == []
    readme = (docs.parent / "README.md").read_text()
    for linked in ("choosing.md", "http.md", "clients.md", "examples/README.md"):
        assert f"(docs/{linked})" in readme
