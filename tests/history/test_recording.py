"""Threads and processes write one history, and it comes back as it was."""

import subprocess
import sys
import threading
from pathlib import Path

from tests.history.honest_world import HonestWorld
from tests.support.history import Begun, History, Place, Read

WRITERS = 4
EVENTS_EACH = 200
PLACE = Place("data", 0)

WRITER = """
import sys
from pathlib import Path
from tests.support.history import Begun, History
with History(Path(sys.argv[1])) as history:
    for number in range(int(sys.argv[3])):
        name = f"{sys.argv[2]}/{number}"
        history.note(Begun(transaction=name, transactional_id=sys.argv[2], incarnation=1, timeout_s=60.0))
"""


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    made = HonestWorld(1).run().events
    with History(path) as history:
        for event in made:
            history.note(event)
        assert History.load(path).events == history.events


def test_threads_write_one_history() -> None:
    history = History()

    def write(reader: str) -> None:
        for number in range(EVENTS_EACH):
            history.note(Read(reader=reader, place=PLACE, offset=number, value=f"{reader}/{number}"))

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [event.at for event in history.events]
    assert len(times) == WRITERS * EVENTS_EACH
    assert times == sorted(times)


def test_processes_write_one_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    root = Path(__file__).resolve().parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"p{number}", str(EVENTS_EACH)], cwd=root)
        for number in range(WRITERS)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * WRITERS
    events = [event for event in History.load(path).events if isinstance(event, Begun)]
    assert len(events) == len({event.transaction for event in events}) == WRITERS * EVENTS_EACH
    for number in range(WRITERS):
        own = [event.transaction for event in events if event.transactional_id == f"p{number}"]
        assert own == [f"p{number}/{index}" for index in range(EVENTS_EACH)]
