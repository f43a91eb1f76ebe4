"""Builds the sdist and the wheel. Two builds of the same files give the same bytes."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the two archives are built from. Other files of the working folder must not get into them.
SOURCES = ("kwire", "storage", "pyproject.toml", "README.md", "LICENSE")
BUILD_TIMEOUT_S = 300.0
# The earliest time that a zip archive can store, for sources without a commit.
EARLIEST_TIME_S = 315_532_800
_BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def build(output: Path) -> tuple[Path, Path]:
    """Build into `output`. Return the sdist, and the wheel that was built from the sdist."""
    output.mkdir(parents=True, exist_ok=True)
    time_s = commit_time_s()
    with tempfile.TemporaryDirectory(prefix="kwire-build-") as folder:
        source = Path(folder) / "source"
        copy_sources(source)
        sdist = _run_backend("build_sdist", source, Path(folder), time_s)
        _make_reproducible(sdist, output / sdist.name, time_s)
        with tarfile.open(output / sdist.name) as archive:
            archive.extractall(folder, filter="data")
        unpacked = Path(folder) / sdist.name.removesuffix(".tar.gz")
        wheel = _run_backend("build_wheel", unpacked, Path(folder), time_s)
        shutil.copyfile(wheel, output / wheel.name)
    return output / sdist.name, output / wheel.name


def commit_time_s() -> int:
    """Return the time of the last commit, which is the time of all files in the archives."""
    told = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return int(told.stdout) if told.returncode == 0 and told.stdout.strip() else EARLIEST_TIME_S


def copy_sources(target: Path) -> None:
    """Copy the files that git knows or would know; without git all files but compiled ones."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *SOURCES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if listed.returncode == 0:
        names = [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    else:
        found = [path for name in SOURCES for path in ([ROOT / name] if name.count(".") else (ROOT / name).rglob("*"))]
        names = [path.relative_to(ROOT) for path in found if path.is_file() and "__pycache__" not in path.parts]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)


def _run_backend(step: str, source: Path, output: Path, time_s: int) -> Path:
    """Call the build backend in a process of its own, with this environment's setuptools."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _BUILD, step, str(output)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(time_s), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{step} failed:\n{done.stdout}{done.stderr}")
    return output / done.stdout.splitlines()[-1]


def _make_reproducible(sdist: Path, target: Path, time_s: int) -> None:
    """Copy an sdist, with the same owner, time and order of files however it was built."""
    content = io.BytesIO()
    with tarfile.open(sdist) as built, tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in sorted(built.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            archive.addfile(member, built.extractfile(member) if member.isfile() else None)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=time_s) as compressed:
        compressed.write(content.getvalue())
