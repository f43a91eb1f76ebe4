"""The wheel and the sdist: what is in them, that builds are equal, and that they work in an empty environment."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIMEOUT_S = 110.0
TRIAL_TIMEOUT_S = 900.0


def package(*arguments: str, timeout_s: float = BUILD_TIMEOUT_S) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "packaging_steps", *arguments],
        env={"PYTHONPATH": str(ROOT / "scripts"), "PATH": "/usr/local/bin:/usr/bin:/bin", **pip_settings()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    package("--no-trial", "--output", str(folder))
    return folder


def test_the_wheel_has_every_file_of_the_packages_the_program_and_the_plugin(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (folder,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        entry_points = archive.read(f"{folder}/entry_points.txt").decode()
        metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
    assert {
        "kwire/py.typed",
        "storage/py.typed",
        "kwire/web/pages/console/docs/index.html",
        "kwire/web/pages/kwire.js",
    } <= names
    assert "kwire = kwire.cli:main" in entry_points
    assert "kwire = kwire.pytest_plugin" in entry_points
    found = [path for package in ("kwire", "storage") for path in (ROOT / package).rglob("*") if path.is_file()]
    files = {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}
    assert {name for name in names if not name.startswith(f"{folder}/")} == files
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"spark", "plots", "test", "dev"} <= set(metadata.get_all("Provides-Extra") or ())


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [one for one in dependencies if not re.fullmatch(r"[a-z0-9-]+>=[0-9.]+,<[0-9.]+", one)] == []


def test_the_tested_versions_are_within_the_bounds() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    tested = {name.lower().replace("_", "-"): numbers(version) for name, version in pins.items()}
    for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        name, lower, upper = re.split(r">=|,<", one)
        assert numbers(lower) <= tested[name] < numbers(upper), one


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


@pytest.mark.full("it builds again, which takes ten seconds")
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    package("--no-trial", "--output", str(tmp_path))
    assert digests(tmp_path) == digests(built)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.full("it installs all dependencies twice, which takes minutes")
@pytest.mark.timeout(TRIAL_TIMEOUT_S)
def test_the_wheel_works_in_an_empty_environment_also_with_the_lowest_versions(tmp_path: Path) -> None:
    said = package("--lowest", "--output", str(tmp_path), timeout_s=TRIAL_TIMEOUT_S)
    assert said.count("served, produced, consumed, published, subscribed") == 2
    assert "mypy --strict" in said
