"""The systemd unit: systemd accepts it, and its limits fit those of the server."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from kwire.cli.serve.foreground import STOP_SECONDS_MAX

UNIT = Path(__file__).resolve().parents[1] / "scripts" / "systemd" / "kwire.service"


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_the_unit_waits_for_the_server_and_watches_it(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert float(service["WatchdogSec"]) > 0
    assert service["Restart"] in ("on-failure", "always")
    assert service["User"] != "root"
    assert int(service["LimitNOFILE"]) >= 100_000


def test_systemd_waits_longer_than_the_server_needs_to_stop(unit: configparser.ConfigParser) -> None:
    assert float(unit["Service"]["TimeoutStopSec"]) > STOP_SECONDS_MAX


@pytest.mark.needs_systemd
def test_systemd_accepts_the_unit(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    # The program is not installed here.
    text = UNIT.read_text().replace("/opt/kwire/bin/kwire", str(shutil.which("true")))
    (tmp_path / UNIT.name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert (verified.returncode, told) == (0, [])
