"""The example that draws room activity makes its picture with one command."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import KwireProcess
from tests.support.spark import fetch_jars

pytestmark = [pytest.mark.needs_spark, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "room_activity" / "plot.py"
RUN_S = 280.0


@pytest.mark.full("runs an example of the documentation with its demo stream in real time")
def test_a_demo_stream_becomes_a_picture(kwire: KwireProcess, tmp_path: Path) -> None:
    fetch_jars(tmp_path)
    path = tmp_path / "activity.png"
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), str(path), "--url", kwire.http_url, "--bootstrap", kwire.bootstrap],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"results drawn in {path}" in ended.stdout
    picture = path.read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (1200, 1080)
