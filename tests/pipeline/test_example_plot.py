"""The example that draws room activity makes its picture with one command."""

import struct
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kwire.client import Event
from tests.support.server import KwireProcess, kwire_command
from tests.support.spark import fetch_jars

RUN_S = 280.0
PREFIX = "demo-"


def size_of(path: Path) -> tuple[int, ...]:
    picture = path.read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", picture[16:24])


@pytest.mark.needs_spark
@pytest.mark.timeout(300)
@pytest.mark.full("runs an example of the documentation with Spark; the drawing and the job have tests of their own")
def test_a_demo_stream_becomes_a_picture(kwire: KwireProcess, tmp_path: Path) -> None:
    fetch_jars(tmp_path)
    path = tmp_path / "activity.png"
    servers = ("--http", kwire.http_url, "--bootstrap-server", kwire.bootstrap)
    ended = subprocess.run(
        [str(kwire_command()), "example", "plot", str(path), *servers],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"results drawn in {path}" in ended.stdout
    assert size_of(path) == (1200, 1080)


@pytest.mark.needs_spark
def test_results_of_the_job_are_drawn(tmp_path: Path) -> None:
    from kwire.cli.example.activity_picture import draw

    began = datetime(2026, 1, 31, 12, tzinfo=UTC)
    ends = [(began + timedelta(minutes=minute)).isoformat() for minute in range(4)]
    room = f"{PREFIX}lobby"
    facts = [
        *(("activity.top", {"window_end": end}) for end in ends),
        *(("activity.counts", {"room": room, "window_end": end, "events": 5}) for end in ends),
        *(("activity.users", {"room": room, "window_end": end, "users": 2}) for end in ends),
        ("activity.sessions", {"room": room, "session_start": ends[0], "session_end": ends[2]}),
    ]
    results = [
        Event(room=room, event_id=str(offset), offset=offset, type=kind, data=data, timestamp=ends[0], metadata={})
        for offset, (kind, data) in enumerate(facts)
    ]
    draw(results, PREFIX, began, tmp_path / "activity.png")
    assert size_of(tmp_path / "activity.png") == (1200, 1080)
